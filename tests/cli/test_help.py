"""Help by task, whole sentences at every width, one word per thing, and former spellings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli.main import SHELLS, VARIABLE, cli
from penstock.cli.session import FORMER, TASKS, first_sentence
from tests.cli.conftest import Run, add
from tests.cli.test_command_tree import TREE

AGE = re.compile(r"\d+ (?:s|min) ago|\bnow\b")


def help_at(width: int, *path: str) -> str:
    # The runner has no terminal; click leaves two columns free in a real one.
    text = min(width, cli.context_settings["max_content_width"]) - 2
    result = CliRunner().invoke(cli, [*path, "--help"], terminal_width=text)
    assert 0 == result.exit_code
    return result.stdout


def visible(path: tuple[str, ...]) -> bool:
    return not any(TREE[path[:end]].hidden for end in range(len(path) + 1))


def test_every_visible_command_stands_under_one_task():
    listed = [name for names in TASKS.values() for name in names]

    assert sorted(listed) == sorted(name for name, command in cli.commands.items() if not command.hidden)
    assert len(listed) == len(set(listed))
    shown = help_at(80)
    assert list(TASKS) == [heading for heading in re.findall(r"^(\S.*):$", shown, re.M) if heading in TASKS]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_sentence_is_cut_and_no_option_is_broken(width: int):
    for path, command in TREE.items():
        shown = help_at(width, *path)
        # As one line, whatever the width: each text stands there as it was written.
        flat = " ".join(shown.split())

        texts = [option.help for option in command.params if isinstance(option, click.Option) and option.help]
        if isinstance(command, click.Group):
            below = [each for each in command.commands.values() if not each.hidden]
            texts += [first_sentence(each) for each in below]
        hidden = [option.help for option in command.params if getattr(option, "hidden", False)]
        assert [] == [text for text in texts if text not in hidden and " ".join(text.split()) not in flat]
        # Examples and tables of commands stay as they are: they are there to be copied.
        long = [line for line in shown.splitlines() if len(line) > min(width, 100)]
        assert [] == [line for line in long if "penstock" not in line], path


def test_an_option_name_has_one_kind_of_value():
    """``--path`` of a search is a pattern; priorities of the Redis contract are words; a model is a file."""
    allowed = {"--path": {"PATH", "GLOB"}, "--priority": {"0-10", "[high|normal|low]"}}
    allowed["--type"] = {"SUFFIX", "[pdf|txt|md|docx]"}
    allowed["--watch"] = {"", "FOLDER"}  # of `serve`: the folder to watch; else: go on showing
    allowed["--from"] = {"FILE", "PATH|URL"}
    kinds: dict[str, set[str]] = {}
    for path in filter(visible, TREE):
        context = click.Context(TREE[path])
        for option in (each for each in TREE[path].params if isinstance(each, click.Option)):
            kind = "" if option.is_flag else option.make_metavar(context)
            for name in option.opts:
                if name not in getattr(option, "former", ()):
                    kinds.setdefault(name, set()).add(kind)

    assert {} == {name: kind for name, kind in kinds.items() if len(kind) > 1 and kind != allowed.get(name)}


def test_the_glossary_has_every_command_and_every_option_of_several_commands():
    page = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "words.md"
    section = page.read_text(encoding="utf-8").partition("\n## Command line\n")[2].partition("\n## ")[0]
    names = set(re.findall(r"`(-{0,2}[\w-]+)`", section))
    used = Counter(
        name
        for path in filter(visible, TREE)
        for option in TREE[path].params
        if isinstance(option, click.Option)
        for name in set(option.opts) - set(getattr(option, "former", ()))
    )

    assert set() == {name for names in TASKS.values() for name in names} - names
    assert set() == {name for name, number in used.items() if number >= 3} - names


def test_every_limit_has_its_short_form_and_every_question_too():
    shorts = {"--limit": "-n", "--yes": "-y", "--quiet": "-q", "--version": "-V", "--help": "-h"}
    for path, command in TREE.items():
        for option in command.params:
            for long in shorts.keys() & set(option.opts):
                assert shorts[long] in option.opts, f"{' '.join(path)} {long}"


# Former spellings.


def spelling(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split() if word.islower() and not word.startswith("-"))


def test_every_hidden_command_is_a_former_spelling_of_a_visible_one():
    hidden = {path for path in TREE if not visible(path) and not isinstance(TREE[path], click.Group)}

    assert hidden == {spelling(old) for old in FORMER}
    for old, new in FORMER.items():
        assert visible(spelling(new)), new
        assert TREE[spelling(old)].callback is TREE[spelling(new)].callback or "jobs" in new


def test_former_spellings_work_and_are_not_shown(run: Run):
    first = add(run, "one")

    assert first in run("queue", "list", "--type", "content").stdout
    assert "No jobs match." in run("queue", "list", "--type", "file").stdout
    former, current = (run(*words, first).stdout for words in (["queue", "show"], ["jobs"]))
    # A column is as wide as the age in it.
    assert AGE.sub("AGE", former).split() == AGE.sub("AGE", current).split()
    assert "cancelled" in run("queue", "cancel", first).stdout
    assert "queued again" in run("queue", "retry", first).stdout
    assert "--type" not in run("jobs", "--help").stdout.replace("--item-type", "")


def test_the_words_of_the_contract_lead_to_the_same_commands(run: Run, tmp_path: Path):
    rags = tmp_path / "rags.yaml"
    rags.write_text("rags: {}\n")

    for words in (["redis", "job", "x"], ["ingest", "status", "--job", "x"]):
        for option in ("--rags", "--config"):
            told = run(*words, option, str(tmp_path / "none.yaml"), code=3).stderr
            assert "none.yaml" in told
    for words in (["redis", "status"], ["queue", "status"], ["redis", "gateway"], ["gateway"]):
        assert "none.yaml" in run(*words, "--config", str(tmp_path / "none.yaml"), code=3).stderr


# Jobs, limits, quiet, version.


def test_jobs_takes_the_filters_of_the_list(run: Run):
    ids = [add(run, text) for text in ("one", "two", "three")]
    run("cancel", ids[0])

    shown = run("jobs", "-n", "2")
    assert [True, True, False] == [job_id in shown.stdout for job_id in reversed(ids)]
    assert f"--after {ids[1]}" in shown.stderr
    assert ids[0] in run("jobs", "--after", ids[1]).stdout
    assert ids[0] in run("jobs", "--status", "cancelled").stdout
    assert ids[1] not in run("jobs", "--status", "cancelled", "--children").stdout
    assert "not both" in run("jobs", ids[0], "--status", "failed", code=2).stderr


def test_quiet_leaves_out_hints_and_confirmations_but_not_results(run: Run):
    result = run("queue", "add", "content", "ingest", "--text", "one", "--quiet")
    assert ("", "") == (result.stdout, result.stderr)
    add(run, "two")

    result = run("-q", "jobs", "-n", "1")
    assert ("two" in result.stdout, "") == (True, result.stderr)
    assert "No worker" in run("status").stdout
    assert "No worker" not in run("status", "-q").stdout
    assert "ERR_JOB_NOT_FOUND" in run("-q", "jobs", "nothing", code=4).stderr


def test_the_version_has_a_short_form(run: Run):
    assert run("-V").stdout == run("--version").stdout
    assert re.fullmatch(r"penstock \d+\.\d+\S*\n", run("-V").stdout)


# Completion.


def test_each_shell_gets_a_script(run: Run):
    for shell in SHELLS:
        script = run("completion", shell).stdout
        assert f"{VARIABLE}={shell}_complete" in script
        if found := shutil.which(shell):
            subprocess.run([found, "-n"], input=script, text=True, check=True, timeout=60)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_answers_each_shell(shell: str):
    def complete(*words: str) -> str:
        line = " ".join(["penstock", *words])
        environment = {"COMP_WORDS": line, "COMP_CWORD": str(len(words)), VARIABLE: f"{shell}_complete"}
        if shell == "fish":
            environment["COMP_CWORD"] = words[-1]
        result = CliRunner().invoke(cli, [], env=environment, prog_name="penstock")
        assert 0 == result.exit_code, result.output
        return result.stdout

    assert "index" in complete("in")
    assert "ingest" not in complete("in")
    assert "gateway" in complete("redis", "g")
    assert "--item-type" in complete("jobs", "--it")
    assert {"zsh", "fish"} & {word for word in re.split(r"\W+", complete("completion", "")) if word}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_script(run: Run, tmp_path: Path):
    script = tmp_path / "completion.sh"
    script.write_text(run("completion", "bash").stdout)
    wrapper = tmp_path / "penstock"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock "$@"\n')
    wrapper.chmod(0o755)
    asked = (
        f"source {script}; COMP_WORDS=(penstock que); COMP_CWORD=1; "
        "_penstock_completion penstock; echo ${COMPREPLY[@]}"
    )
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    answer = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, timeout=120, env=environment
    )

    assert "queue" == answer.stdout.strip(), answer.stderr
