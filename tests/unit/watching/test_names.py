"""What a word names, of dispatchers that have told who they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.watch_messages import Identity, WatchAnswer
from gridengine.status.rows import LaunchStatus, Status
from gridengine.watching.names import (
    Known,
    SeveralMeant,
    Word,
    calls_meant,
    listed,
    meant,
    of_answer,
    only,
    word_for,
    word_of,
)


def dispatcher(name: str, pid: int, end: str, **more: Any) -> Known[str]:
    run = f"20261123-093000-node7-{pid}-{end}"
    who = Identity(name, run, pid, "node7", f"/s/{name}", "/s", 0.0, "Slurm", "1.2", "3.11")
    status = Status(launches=[LaunchStatus("", job="4711.1")]) if name == "sweep.py" else Status()
    return of_answer(WatchAnswer(replace(who, **more), status), end)


SWEEP = dispatcher("sweep.py", 7, "0a1b2c", folder="/r/a", runs={"seen": "/r/named/seen.sqlite"})
MAIN = dispatcher("main", 8, "1b2c3d", home="/r/dispatchers/main", clients=[("cl.py", 77)])


@pytest.mark.parametrize(
    "text",
    [
        *("sweep.py", "sweep", "/s/sweep.py", "7", "0a1b2c", "20261123-093000-node7-7", "4711.1"),
        *("/r/a", "/r/a/connection.json", "/r/a/logs/worker.log", "seen", "/r/named/seen.sqlite"),
    ],
)
def test_each_printed_name_of_a_dispatcher_finds_it(text: str) -> None:
    assert meant(word_of(text), [SWEEP, MAIN]) == [SWEEP]


@pytest.mark.parametrize(
    "text", ["swee", "py", "77777", "/s", "/r", "/r/ab", "node7", "2026112", "a1b2c", "20261124"]
)
def test_a_name_has_no_parts_of_other_names(text: str) -> None:
    assert meant(word_of(text), [SWEEP, MAIN]) == []


def test_a_process_id_is_no_beginning_of_another_name() -> None:
    assert meant(Word("2026"), [SWEEP]) == []
    assert meant(Word("20261123"), [SWEEP]) == [SWEEP]


def test_a_name_of_its_own_comes_before_those_of_scripts_and_these_before_runs() -> None:
    own, script = dispatcher("sweep", 9, "2c3d4e"), SWEEP
    run = dispatcher("other.py", 10, "3d4e5f", runs={"sweep": "/r/named/sweep.sqlite"})
    assert meant(Word("sweep"), [run, script, own]) == [own]
    assert meant(Word("sweep"), [run, script]) == [script]
    assert meant(Word("sweep"), [run]) == [run]


def test_only_a_word_for_a_run_or_a_client_means_these_calls_alone() -> None:
    assert calls_meant(Word("seen"), SWEEP) == "seen"
    assert calls_meant(Word("x", "/r/named/seen.sqlite"), SWEEP) == "seen"
    assert calls_meant(Word("cl.py"), MAIN) == "cl.py"
    assert calls_meant(Word("x", "/elsewhere/cl.py"), MAIN) == "cl.py"
    assert calls_meant(Word("77"), MAIN) == "77"
    for text in ("sweep.py", "7", "0a1b2c", ""):
        assert calls_meant(Word(text), SWEEP) == ""


def test_each_of_several_is_told_with_a_word_that_names_it_alone() -> None:
    twins = [SWEEP, dispatcher("sweep.py", 7, "2c3d4e"), MAIN]
    with pytest.raises(SeveralMeant) as told:
        only(Word("7"), twins, "dispatcher")
    words = "0a1b2c (sweep.py, process 7 on node7, /s/sweep.py, run 'seen'); 2c3d4e (sweep.py"
    assert words in str(told.value)
    for one in twins:
        assert only(Word(word_for(one, twins)), twins, "dispatcher") == one
    assert word_for(MAIN, twins) == "main"


def test_an_error_for_an_unknown_word_lists_known_ones_nearest_first() -> None:
    twin = dispatcher("sweep.py", 7, "2c3d4e")
    assert listed("mian", [SWEEP, MAIN]) == "main, sweep.py"
    assert listed("sweeep", [MAIN, SWEEP, twin]) == "0a1b2c (sweep.py), 2c3d4e (sweep.py), main"
    many = [dispatcher(f"a{number}", number, str(number)) for number in range(10)]
    assert listed("a", many).endswith("a7 and 2 more")


def test_only_a_word_with_a_slash_or_an_existing_file_can_be_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.json").touch()
    (tmp_path / "link").symlink_to("client.json")
    monkeypatch.setenv("HOME", str(tmp_path))
    file = str(tmp_path / "client.json")
    assert word_of("client.json").place == file
    assert word_of("link").place == word_of("~/link").place == word_of("./link").place == file
    assert word_of("./gone").place == str(tmp_path / "gone")
    for text in ("sweep", "", "tcp://10.0.0.7:4711", "a\0b"):
        assert word_of(text).place == ""
