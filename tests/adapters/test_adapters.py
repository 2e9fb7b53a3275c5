"""LangChain, LlamaIndex and pytest over an index, with the packages themselves and a live server.

Imported in the tests: each process of a run collects all modules, and these packages take seconds to load.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Client, Penstock
from tests.http.live_server import LiveServer

pytest_plugins = ["pytester"]

MILL = "# The mill\n\nThe sluice gate lets water from the river onto the wheel.\n"
BREAD = "# Bread\n\nFlour, salt and yeast are kneaded before the dough is left to rise.\n"


@pytest.fixture
def app(penstock_app: Penstock, tmp_path: Path) -> Penstock:
    """Index two files."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "mill.md").write_text(MILL)
    (folder / "bread.md").write_text(BREAD)
    receipt = penstock_app.index(folder)
    assert penstock_app.wait(receipt.job_id, timeout=60).status == "done"
    return penstock_app


@pytest.fixture
def index(request: pytest.FixtureRequest, app: Penstock, tmp_path: Path) -> Iterator[Penstock | Client]:
    """Open the index directly, or by a server."""
    if request.param == "library":
        yield app
        return
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "state").symlink_to(tmp_path / "penstock")
    server = LiveServer(tmp_path / "server", "--no-worker", embedder="static")
    with Client(server.url) as client:
        yield client
    assert 0 == server.stop(), server.log.read_text()


BOTH = pytest.mark.parametrize("index", ["library", "client"], indirect=True)


@BOTH
def test_langchain_retrieves_and_loads(index: Penstock | Client) -> None:
    from langchain_core.documents import Document
    from langchain_core.runnables import RunnableLambda

    from penstock.adapters import langchain

    def names(found: list[Document]) -> list[str]:
        return [Path(each.metadata["source"]).name for each in found]

    retriever = langchain.PenstockRetriever(index=index, options={"limit": 3})
    chain = retriever | RunnableLambda(names)
    assert chain.invoke("water onto the wheel")[0] == "mill.md"
    found = retriever.invoke("water onto the wheel")[0]
    assert "sluice gate" in found.page_content
    assert found.id
    assert found.metadata["collection"] == "default"

    loaded = langchain.PenstockLoader(index).load()
    assert {Path(each.metadata["source"]).name for each in loaded} == {"mill.md", "bread.md"}
    assert {each.page_content.strip() for each in loaded} == {MILL.strip(), BREAD.strip()}
    assert langchain.PenstockLoader(index, path="*/bread.md").load()[0].metadata["page_count"] == 1


@BOTH
def test_llama_index_retrieves_and_ingests(index: Penstock | Client) -> None:
    from llama_index.core.ingestion import IngestionPipeline
    from llama_index.core.node_parser import SentenceSplitter
    from llama_index.core.schema import Document

    from penstock.adapters import llama_index

    found = llama_index.PenstockNodeRetriever(index, limit=3).retrieve("dough with yeast")
    assert Path(found[0].node.metadata["source"]).name == "bread.md"
    assert found[0].score
    assert "kneaded" in found[0].node.get_content()

    steps = [
        SentenceSplitter(chunk_size=64, chunk_overlap=0),
        llama_index.PenstockIngestion(index=index, tag="letters", wait_s=60),
    ]
    text = "The miller wrote to the bishop about the tithe of the orchard."
    nodes = IngestionPipeline(transformations=steps).run(documents=[Document(text=text)])
    assert [node.get_content() for node in nodes] == [text]
    hits = llama_index.PenstockNodeRetriever(index, tag="letters").retrieve("tithe of the orchard")
    assert [hit.node.get_content() for hit in hits] == [text]


def test_adapters_search_a_project_or_all(app: Penstock, tmp_path: Path) -> None:
    from penstock.adapters import langchain, llama_index

    root = tmp_path / "weir"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / "weir.md").write_text("# The weir\n\nThe weir holds back the water of the river.\n")
    receipt = app.index(root)
    assert app.wait(receipt.job_id, timeout=60).status == "done"

    def found(**options: object) -> set[str]:
        retrieved = langchain.PenstockRetriever(index=app, options=options, weak=True).invoke("water")
        nodes = llama_index.PenstockNodeRetriever(app, weak=True, **options).retrieve("water")  # type: ignore[arg-type]
        names = {Path(each.metadata["source"]).name for each in retrieved}
        assert names == {Path(each.node.metadata["source"]).name for each in nodes}
        return names

    assert "weir.md" not in found()
    assert found(project="weir") == {"weir.md"}
    assert found(all=True) > {"weir.md", "mill.md"}
    loaded = langchain.PenstockLoader(app, all=True).load()
    assert {Path(each.metadata["source"]).name for each in loaded} == {"mill.md", "bread.md", "weir.md"}
    loaded = langchain.PenstockLoader(app, project="weir").load()
    assert {Path(each.metadata["source"]).name for each in loaded} == {"weir.md"}


def test_weak_hits_are_left_out_unless_asked_for(app: Penstock) -> None:
    from penstock.adapters import langchain, llama_index

    unrelated = "quarterly revenue of the railway"
    assert all(hit.weak for hit in app.search(unrelated))
    assert langchain.PenstockRetriever(index=app).invoke(unrelated) == []
    assert langchain.PenstockRetriever(index=app, weak=True).invoke(unrelated)
    assert llama_index.PenstockNodeRetriever(app).retrieve(unrelated) == []


def test_the_plugin_gives_each_test_an_application_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_first(penstock_app):
            @penstock_app.function("double")
            def double(payload): return payload["n"] * 2

            receipt = penstock_app.call("double", {"n": 21})
            assert penstock_app.wait(receipt.job_id, timeout=60).result == 42

        def test_second(penstock_app):
            assert penstock_app.jobs() == []
        """
    )
    pytester.runpytest_inprocess("-p", "no:randomly").assert_outcomes(passed=2)
