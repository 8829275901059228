"""What may be odd about a run on this machine's processes, brought about; what `explain`, `top` and
`report` say of it: the cause, the place, the next step.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.integration.watching.conftest import StartScript
from tests.integration.watching.test_commands import gridengine, shown_at_last
from tests.support.agent_driver import alive
from tests.support.reports import explanations_in
from tests.support.scenario import PRELUDE
from tests.support.situations import FULL_DISK, SITUATIONS
from tests.support.small_disk import filled, small_disk
from tests.support.standalone import Standalone
from tests.support.waiting import wait_until

SCHEDULER = """
def CLUSTER(max_workers=2):
    return gridengine.ProcessScheduler(max_workers)

"""


def explained(process: subprocess.Popen[str], cause: str, words: str = "") -> dict[str, str]:
    """Wait until `explain` tells of this cause; return what it says."""

    def look() -> dict[str, str] | None:
        assert process.poll() is None
        found = json.loads(gridengine("explain", "--json"))
        return next((one for one in found if one["cause"] == cause and words in one["text"]), None)

    wait_until(lambda: list(Path(os.environ["GRIDENGINE_WATCH_DIRECTORY"]).glob("*.sock")))
    told: dict[str, str] = wait_until(look)
    return told


@pytest.mark.parametrize("name", SITUATIONS)
def test_oddities_are_told_with_the_place_and_the_next_step(
    start_script: StartScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    situation = SITUATIONS[name]
    for setting, value in situation.environment.items():
        monkeypatch.setenv(setting, value)
    process = start_script(PRELUDE + SCHEDULER + situation.script)
    wait_until(lambda: len(list(tmp_path.glob("began *"))) >= situation.began)
    told = explained(process, situation.cause, situation.words)
    assert situation.step in told["next_step"]
    assert told["place"] == {"host": socket.gethostname()}.get(situation.place, situation.place)
    shown_at_last(situation.cause)

    def is_reported() -> bool:
        gridengine("report", "-o", str(tmp_path / "report.html"))
        told = explanations_in((tmp_path / "report.html").read_text())
        return situation.words in told and situation.step in told

    wait_until(is_reported)


def test_a_disk_full_of_kept_results_is_reported_until_there_is_room_again(
    start_script: StartScript, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "runs") as runs:
        process = start_script(PRELUDE + SCHEDULER + FULL_DISK)
        wait_until((tmp_path / "there").exists)
        with filled(runs):
            (tmp_path / "full").touch()
            told = explained(process, "disk", "database or disk is full")
            assert told["place"] == str(runs / "named" / "kept.sqlite")
            assert "make room there" in told["next_step"]
            shown = json.loads(gridengine("top", "--once", "--json"))
            assert "disk" in [one["cause"] for one in shown["explanations"]]
            assert "cannot be written: " in " ".join(gridengine("top", "--once").split())
            gridengine("report", "-o", str(tmp_path / "report.html"))
            assert told["next_step"] in explanations_in((tmp_path / "report.html").read_text())
        wait_until(lambda: "disk is full" not in gridengine("explain"))
        (tmp_path / "go").touch()
        assert json.loads(process.communicate(timeout=60)[0].splitlines()[-1]) == {
            "results": 2,
            "kept": 2,
        }


def test_a_full_disk_of_a_client_s_run_is_told_by_its_dispatcher(
    start_script: StartScript, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    with small_disk(tmp_path / "runs") as runs:
        dispatcher = Standalone(tmp_path / "elsewhere")
        try:
            process = start_script(
                f"{PRELUDE}\ndef CLUSTER(max_workers):\n"
                f"    return gridengine.Client({str(dispatcher.path)!r})\n{FULL_DISK}"
            )
            wait_until((tmp_path / "there").exists)
            with filled(runs):
                (tmp_path / "full").touch()
                told = explained(dispatcher.process, "disk", "database or disk is full")
                assert told["place"] == str(runs / "named" / "kept.sqlite")
                assert f"(process {process.pid} on {socket.gethostname()})" in told["text"]
            wait_until(lambda: "disk is full" not in gridengine("explain"))
            (tmp_path / "go").touch()
            told = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])
            assert told == {"results": 2, "kept": 2}
        finally:
            dispatcher.end()


def test_a_full_disk_of_a_standalone_dispatcher_s_journal_is_told(
    start_script: StartScript, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "runs") as runs:
        dispatcher = Standalone(runs)
        try:
            with filled(runs):
                process = start_script(
                    f"{PRELUDE}\ntell(results=gridengine.map(hold, [0, 1], scheduler="
                    'gridengine.Client("night"), chunksize=1))'
                )
                told = explained(dispatcher.process, "disk", "database or disk is full")
                assert Path(told["place"]).parent == dispatcher.folder
                assert "make room there" in told["next_step"]
            wait_until(lambda: "disk is full" not in gridengine("explain"))
            (tmp_path / "go").touch()
            told = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])
            assert told == {"results": [0, 1]}
        finally:
            dispatcher.end()


HOLD = "gridengine.map(hold, range(3), scheduler=CLUSTER(), chunksize=1)"


def test_workers_that_are_suspended_are_told(start_script: StartScript, tmp_path: Path) -> None:
    process = start_script(PRELUDE + SCHEDULER + HOLD)
    wait_until(lambda: len(list(tmp_path.glob("began *"))) >= 2)
    explained(process, "max_workers")
    [worker] = json.loads(gridengine("top", "--once", "--json"))["status"]["workers"]
    os.kill(worker["pid"], signal.SIGSTOP)
    try:
        told = explained(process, "silent", "suspended")
        assert "`kill -CONT`" in told["next_step"]
    finally:
        if alive(worker["pid"]):
            os.kill(worker["pid"], signal.SIGCONT)
