"""Options by name: every public face refuses unknown ones, and the faces have the same."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from penstock import AsyncClient, Client, Penstock, config
from penstock.client import async_resources, library_calls, limit_calls, schedule_calls
from penstock.errors import InvalidRequest, UnknownOption
from penstock.service import (
    documents,
    functions,
    jobs,
    libraries,
    limits,
    notes,
    passages,
    requests,
    schedules,
    search,
)
from penstock.service.graph import Graph
from penstock.service.upkeep import Verifier

LIBRARY = [
    Penstock,
    jobs.Jobs,
    documents.Documents,
    search.Search,
    passages.Similar,
    schedules.Schedules,
    libraries.Libraries,
    limits.Limits,
    notes.Notebook,
    Graph,
    Verifier,
    functions.FunctionHandle,
]
CLIENTS = [
    (Client, AsyncClient),
    (schedule_calls.ClientSchedules, async_resources.AsyncSchedules),
    (library_calls.ClientLibraries, async_resources.AsyncLibraries),
    (limit_calls.ClientLimits, async_resources.AsyncLimits),
]
CALLED_AS_THEMSELVES = {"__call__"}
"""The options of such a method are those of a function of the application."""


def methods(face: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, method in inspect.getmembers(face, inspect.isfunction):
        if not name.startswith("_") or name in CALLED_AS_THEMSELVES:
            yield name, method


def keywords(method: Callable[..., Any]) -> inspect.Parameter | None:
    kinds = inspect.signature(method).parameters.values()
    return next((one for one in kinds if one.kind is one.VAR_KEYWORD), None)


FACES = [*LIBRARY, *(face for pair in CLIENTS for face in pair)]
OPEN = [
    pytest.param(face, name, id=f"{face.__name__}.{name}")
    for face in FACES
    for name, method in methods(face)
    if keywords(method) is not None and name not in CALLED_AS_THEMSELVES
]


def test_no_public_method_takes_any_option():
    for face in FACES:
        for name, method in methods(face):
            found = keywords(method)
            if found is not None and name not in CALLED_AS_THEMSELVES:
                assert re.fullmatch(r"Unpack\[\w+\]", str(found.annotation)), f"{face.__name__}.{name}"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Penstock]:
    settings = config.load({}, url="memory://", state_dir=tmp_path, embedder="hashing")
    with Penstock(settings=settings) as opened:
        opened.function("x")(lambda payload: payload)
        yield opened


def instance(face: type, app: Penstock) -> Any:
    """The face, on the application or on a server that does not exist."""
    made: dict[type, Callable[[], Any]] = {
        Penstock: lambda: app,
        jobs.Jobs: lambda: app,
        documents.Documents: lambda: app.documents,
        search.Search: lambda: app._assembly.search,
        passages.Similar: lambda: app._assembly.similar,
        schedules.Schedules: lambda: app.schedules,
        libraries.Libraries: lambda: app.documents.libraries,
        functions.FunctionHandle: lambda: functions.FunctionHandle(app, "x", print),
        Client: lambda: Client("http://127.0.0.1:9"),
        AsyncClient: lambda: AsyncClient("http://127.0.0.1:9"),
        schedule_calls.ClientSchedules: lambda: Client("http://127.0.0.1:9").schedules,
        library_calls.ClientLibraries: lambda: Client("http://127.0.0.1:9").libraries,
        async_resources.AsyncSchedules: lambda: AsyncClient("http://127.0.0.1:9").schedules,
        async_resources.AsyncLibraries: lambda: AsyncClient("http://127.0.0.1:9").libraries,
    }
    return made[face]()


def call_with(method: Callable[..., Any], **named: Any) -> Any:
    """Call with a text for each argument that is required."""
    required = [
        one
        for one in inspect.signature(method).parameters.values()
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    found = method(*("x" for _ in required), **named)
    return asyncio.run(found) if inspect.iscoroutine(found) else found


@pytest.mark.parametrize(("face", "name"), OPEN)
def test_an_unknown_option_is_refused_before_anything_is_done(face: type, name: str, app: Penstock):
    method = getattr(instance(face, app), name)
    fields = {} if name != "submit" else {"item_type": "content", "op": "ingest", "payload": {"content": "x"}}

    with pytest.raises(UnknownOption, match="has no option 'colour'") as refused:
        call_with(method, colour="red", **fields)

    assert isinstance(refused.value, TypeError)
    assert isinstance(refused.value, InvalidRequest)
    assert refused.value.remedy.startswith("The options are ")
    assert [] == app.jobs()


@pytest.mark.parametrize("option", ["include", "exclude", "hosts"])
def test_a_text_in_place_of_a_list_is_not_taken_for_its_letters(option: str, app: Penstock, tmp_path: Path):
    """The first letter of ``exclude="*.tmp"`` leaves out every file."""
    page = "https://example.org/" if option == "hosts" else str(tmp_path)
    calls: list[Callable[..., Any]] = [
        lambda **given: app.index(page, **given),
        lambda **given: app.documents.libraries.add("mill==1", source=page, **given),
    ]
    with Client("http://127.0.0.1:1") as client:
        calls += [
            lambda **given: client.index(page, **given),
            lambda **given: client.libraries.add("mill==1", source=page, **given),
        ]
        for call in calls:
            with pytest.raises(InvalidRequest, match=f"{option}: expected a list of texts, got str"):
                call(**{option: "*.tmp"})
    assert [] == app.jobs()


@pytest.mark.parametrize(
    ("given", "meant"),
    [("tenant", "tenant_id"), ("colection", "collection"), ("type", "file_type"), ("all_tenants", None)],
)
def test_a_misspelt_filter_names_the_one_that_was_meant(app: Penstock, given: str, meant: str | None):
    hint = f"; did you mean '{meant}'" if meant else "has no option"
    for search_by in (app.search, app.context, app.ask, app.documents.sources):
        with pytest.raises(UnknownOption, match=hint):
            call_with(search_by, **{given: "x"})


@pytest.mark.parametrize(("sync", "asynchronous"), CLIENTS, ids=[one.__name__ for one, _ in CLIENTS])
def test_both_clients_have_the_same_methods_with_the_same_options(sync: type, asynchronous: type):
    assert dict(signatures(sync)) == dict(signatures(asynchronous))


def signatures(face: type) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for name, method in methods(face):
        if name not in ("close", "aclose"):
            found = inspect.signature(method).parameters.values()
            yield name, [(one.name, str(one.annotation)) for one in found]


@pytest.mark.parametrize("name", ["index", "search", "ask", "context", "similar", "why"])
def test_library_and_client_have_the_same_options(name: str):
    names = [
        keys(str(found.annotation).removeprefix("Unpack[").removesuffix("]"))
        for face in (Penstock, Client, AsyncClient)
        if (found := keywords(getattr(face, name))) is not None
    ]
    assert 3 == len(names)
    # A server has a rule about the paths of requests, and the library none.
    assert names[0] == names[1] - {"allow_external"} == names[2] - {"allow_external"}


def keys(shape: str) -> set[str]:
    return set(get_type_hints(getattr(requests, shape)))


def test_adapters_have_the_options_of_a_search(app: Penstock):
    from penstock.adapters import langchain, llama_index

    retriever = inspect.signature(llama_index.PenstockNodeRetriever.__init__).parameters["options"]
    assert "Unpack[SearchRequest]" == retriever.annotation
    for make in (
        lambda: llama_index.PenstockNodeRetriever(app, tenant="x"),  # type: ignore[call-arg]
        lambda: langchain.PenstockRetriever(index=app, options={"tenant": "x"}),
        lambda: langchain.PenstockLoader(app, tenant="x"),  # type: ignore[call-arg]
        lambda: llama_index.PenstockIngestion(index=app, where={"tenant": "x"}),
    ):
        with pytest.raises((UnknownOption, ValueError), match="has no option 'tenant'; did you mean"):
            make()
