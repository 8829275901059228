"""Why something waits, in words, played on the core."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from gridengine.dispatcher.core.events import Explained, Launched, LaunchFailed
from gridengine.dispatcher.status_views import status_of
from gridengine.dispatcher.watch_messages import WatchAnswer
from gridengine.errors import SubmissionRefused
from gridengine.resources import Cores, Memory
from gridengine.resources.demand import Demand, encode_demand
from gridengine.schedulers.grid_engine.options import GridEngineWords
from gridengine.schedulers.launcher import Handle, WorkerStatus
from gridengine.schedulers.requests import explanation
from gridengine.status.figures import FailureStatus
from gridengine.status.rows import ConnectedWorkerStatus, FileFault, FunctionStatus, Status
from gridengine.watching.call_explanation import explain_call, explain_worker
from gridengine.watching.connections import full_folder
from gridengine.watching.explanation import explain
from gridengine.watching.phrases import names_of
from gridengine.wire.messages import Measured, RunnerFigures
from tests.support.core_play import Play, failing_starts
from tests.support.watched import WHO

LOG = "/runs/x/1.log"
DISABLED = 'queue instance "all.q@node7" dropped because it is disabled'


def told(play: Play) -> WatchAnswer:
    return WatchAnswer(WHO, status_of(play.core.state, 100.0, play.now, most=100))


def causes(play: Play) -> list[str]:
    return [one.cause for one in explain(told(play))]


def queued(**policy: object) -> tuple[Play, Handle]:
    play = Play(pooled=True, **policy)
    play.submit(5, demand=Demand(Memory(200)))
    handle = Handle("4711", LOG)
    play.play(Launched([handle], Demand(Memory(200))))
    play.poll(handle, WorkerStatus.QUEUED)
    return play, handle


def test_nothing_waits_where_there_is_nothing() -> None:
    assert causes(Play()) == ["nothing"]


def test_an_unheld_request_is_told_with_the_command_that_starts_a_worker() -> None:
    play = Play(resources=Cores(1), keeps_others=True, max_workers=0)
    play.submit()
    play.submit(5, demand=Demand(Memory(200)))
    assert [(one.text, one.next_step) for one in explain(told(play))] == [
        (
            "5 calls that ask for Memory(200) wait: no worker holds Memory(200)",
            "start one: gridengine worker sweep.py --memory 200",
        ),
        ("1 call waits: there is no worker", "start one: gridengine worker sweep.py"),
    ]
    play.hello()
    [one] = explain(told(play))
    assert one.cause == "no_worker"
    play.submit()
    assert explain(told(play))[1].next_step.endswith(
        "start more workers: gridengine worker sweep.py"
    )


def test_a_queued_job_is_explained_by_the_batch_systems_reason_and_a_remedy() -> None:
    play, handle = queued()
    play.now += 20
    play.play(Explained(handle, explanation(GridEngineWords(), DISABLED)))
    answer = told(play)
    [one] = explain(replace(answer, identity=replace(WHO, scheduler="GridEngineScheduler")))
    assert (one.cause, one.place) == ("queued", "4711")
    assert one.text == (
        "5 calls that ask for Memory(200) wait: 1 worker is in the batch system's queue, the "
        f"first, cluster job 4711, for 20.0 s: {DISABLED}"
    )
    assert "qmod -e" in one.next_step


def test_without_a_reason_that_is_said() -> None:
    play, _ = queued()
    assert "the batch system gives no reason" in explain(told(play))[0].text


def test_a_script_is_told_that_its_own_job_holds_the_resources_of_its_workers() -> None:
    status = replace(told(queued()[0]).status, allocation="the 4 cores of Slurm job 12")
    [one] = explain(WatchAnswer(WHO, status))
    assert one.text.endswith(
        "; the script itself holds the 4 cores of Slurm job 12, and they may wait for these"
    )
    assert one.next_step.endswith("without a scheduler= calls run on the 4 cores of Slurm job 12")


def test_a_worker_that_runs_and_has_not_connected_is_told() -> None:
    play, handle = queued()
    play.poll(handle, WorkerStatus.RUNNING)
    [one] = explain(told(play))
    assert one.cause == "starting"
    assert LOG in one.next_step
    play.hello(log="/runs/x/2.log")
    play.play(Launched([Handle("4712", "/runs/x/2.log")], Demand(Memory(200))))
    assert "starting" not in causes(play), "others wait for the calls of the worker that is there"


def test_a_worker_that_gets_no_answer_is_told_with_the_addresses() -> None:
    play, handle = queued()
    play.poll(handle, WorkerStatus.RUNNING)
    play.play(Explained(handle, "tcp://10.0.0.1:4242: no route to host", running=True))
    [one] = explain(told(play))
    assert one.cause == "unreachable"
    assert "no route to host" in one.text
    assert "GRIDENGINE_HOST" in one.next_step


def test_workers_that_end_before_they_connect_are_told() -> None:
    play = Play()
    play.submit(1)
    failing_starts(play, 2)
    assert causes(play) == ["failed_starts"]


def test_hosts_that_are_left_out_are_told() -> None:
    play = Play()
    play.submit(1)
    failing_starts(play, 1, host="n1")
    [one] = explain(told(play))
    assert one.text.endswith("; left out, since no worker could be started there: n1")


def test_a_wait_for_max_workers_is_told() -> None:
    play = Play(max_workers=1)
    play.running(3)
    [waits, *_] = explain(told(play))
    assert waits.cause == "max_workers"
    assert "2 calls wait for a free slot: 1 call is at workers with 1 slot" in waits.text


@pytest.mark.parametrize(("pooled", "most"), [(False, 4), (True, 1)])
def test_max_workers_is_named_as_the_user_has_set_it(pooled: bool, most: int) -> None:
    play = Play(max_workers=1, slots=4, pooled=pooled)
    play.running(9)
    answer = told(play)
    status = answer.status
    assert f"max_workers={most} allows no more" in explain(answer)[0].text
    words = "1 of at most 1" if pooled else "4 of at most 4 here"
    assert status.worker_words == words
    assert dict(status.facts())["workers"] == (f"{words}, 1 busy" if pooled else words)
    play.say(Measured(1.0, 2**20, [RunnerFigures(pid, 0, 0, 2**20) for pid in (7, 8)]))
    assert told(play).status.in_room == (1 if pooled else 2)


def test_calls_of_others_in_between_are_told() -> None:
    play = Play(max_workers=2)
    play.running(3, submitter=1)
    play.submit(3, submitter=2)
    waits = explain(told(play))[0]
    assert waits.cause == "fair_share"
    assert "2 submitters take turns" in waits.text


def test_workers_that_are_suspended_are_told_apart_from_those_of_which_nothing_is_heard() -> None:
    play = Play(max_workers=1)
    play.running(3)
    play.poll(Handle("41", "/runs/x/1.log"), WorkerStatus.SUSPENDED)
    play.later(1)
    waits, odd = [one for one in explain(told(play)) if one.cause == "silent"]
    assert "2 calls wait: 1 of 1 worker is suspended, the first on" in waits.text
    assert "1 of 1 worker is suspended, the first on" in odd.text
    assert "`scontrol resume 41`" in waits.next_step


def test_a_call_that_takes_much_longer_than_others_is_told() -> None:
    play = Play()
    one = play.running(2)
    for _ in range(2):
        play.done(one, seconds=1.0)
        if play.assigned():
            [one] = play.assigned()
    play.submit(1)
    for _ in range(100):
        play.later(1, beats=[b"w"])
    found = {one.cause: one for one in explain(told(play))}
    assert found["straggler"].text.startswith("call 0 of square has run for 00:01:40 on node-w")


def test_a_repeated_call_is_told_with_its_earlier_attempts() -> None:
    play = Play()
    play.crash(play.running(1), 0)
    found = {one.cause: one for one in explain(told(play))}
    assert "is at attempt 2 of 3" in found["retried"].text
    assert "SIGSEGV" in found["retried"].text


@pytest.mark.parametrize(
    ("pooled", "home", "step"),
    [
        (True, "", "raise max_workers="),
        (True, "/home/sweeps", "`gridengine scale sweep.py N` has N workers"),
        (False, "", "default is the number of processors"),
        (False, "/home/sweeps", "`gridengine dispatcher start sweep.py --max-workers N`"),
    ],
)
def test_a_full_system_is_told_with_a_remedy(pooled: bool, home: str, step: str) -> None:
    play = Play(max_workers=1, pooled=pooled)
    play.running(9)
    answer = told(play)
    [first, *_] = explain(replace(answer, identity=replace(WHO, home=home)))
    assert step in first.next_step


def test_each_cause_of_failures_is_told_with_how_often_and_the_last_with_where_to_look() -> None:
    failed = [
        FailureStatus("1.0", "call 0 of f", "f", 1, 1.0, error="bad", host="n1", log="/1.log"),
        FailureStatus("1.1", "call 1 of f", "f", 1, 1.0, error="killed by SIGKILL", hint="Memory"),
        FailureStatus("1.2", "call 2 of f", "f", 1, 1.0, error="bad", host="n2"),
        FailureStatus("1.3", "call 3 of f", "f", 1, 1.0, error="Cancelled", cancelled=True),
    ]
    bad, killed = explain(WatchAnswer(WHO, Status(failed=8, cancelled=1, failures=failed)))
    assert (bad.cause, killed.cause) == ("failures", "failures")
    assert str(bad) == "2 calls failed, the last, call 2 of f, on n2: bad."
    assert killed.text == (
        "call 1 of f failed: killed by SIGKILL; 5 other calls failed too; 1 call was cancelled"
    )
    assert killed.next_step == (
        "Memory; `gridengine calls sweep.py --failed` lists them, and "
        "`gridengine logs sweep.py --failed` shows what their workers wrote"
    )


def test_a_killed_run_is_told_as_killed_alone() -> None:
    [one] = explain(WatchAnswer(replace(WHO, folder="/runs/x"), killed=True))
    assert (one.cause, one.place) == ("killed", "login1")
    assert "The workers' logs are below /runs/x" in one.next_step


def test_no_logs_are_named_where_calls_have_none() -> None:
    failed = [FailureStatus("1.0", "call 0 of f", "f", 1, 1.0, error="bad")]
    [one] = explain(WatchAnswer(WHO, Status(failed=1, failures=failed)))
    assert one.next_step == "`gridengine calls sweep.py --failed` lists them"


def test_a_remedy_comes_with_its_error() -> None:
    play = Play(pooled=True)
    play.submit(2)
    error = SubmissionRefused("Slurm refuses the job: it has words", hint="name one of `sinfo`")
    play.play(LaunchFailed(error))
    [one] = explain(told(play))
    assert one.next_step.startswith(
        "name one of `sinfo`; `gridengine calls sweep.py --failed` lists"
    )
    [call] = explain_call(told(play), "0")
    assert call.next_step == "name one of `sinfo`"


def test_a_wait_for_results_from_elsewhere_is_told() -> None:
    play = Play()
    play.submit(1, after=(7,))
    assert causes(play) == ["blocked"]


def test_one_call_is_found_by_its_number_its_words_and_its_id() -> None:
    play = Play()
    play.running(3)
    for name in ("0", "call 0 of square", "1.0"):
        [one] = explain_call(told(play), name)
        assert "call 0 of square runs on node-w (cluster job 41)" in one.text
    assert explain_call(told(play), "7") == []


def test_a_job_is_found_by_its_name() -> None:
    play = Play()
    play.running(1, name="reader", watched=True)
    assert len(explain_call(told(play), "reader")) == 1


def test_a_worker_is_found_by_its_host_its_process_and_its_cluster_job() -> None:
    play = Play()
    play.running(1)
    for name in ("node-w", "7", "41"):
        [one] = explain_worker(told(play).status, name)
        assert "is busy, with 1 of 1 slot in use" in one.text


def test_a_worker_is_told_with_its_resources() -> None:
    play = Play(resources=Cores(1), keeps_others=True, max_workers=0)
    play.hello(resources=encode_demand(Demand(Memory(20)))[0])
    [one] = explain_worker(told(play).status, "node-w")
    assert one.text.endswith("; it holds Memory(20) & Cores(1)")


def test_memory_asked_for_and_unused_is_told() -> None:
    play = Play()
    one = play.running(1, demand=Demand(Memory(20)))
    assert "memory" not in causes(play)
    play.say(Measured(1.0, 0, [RunnerFigures(99, one.run, 0, 2**30)]))
    found = {one.cause: one for one in explain(told(play))}
    assert "ask for 20.0 GB of memory, and were seen to use 1.0 GB at most" in found["memory"].text
    assert "Memory(1.2)" in found["memory"].next_step


def test_a_full_disk_is_told_first_with_its_place() -> None:
    fault = FileFault("/runs/named/kept.sqlite", "database or disk is full", "it is lost")
    answer = told(queued()[0])
    first, *_ = explain(replace(answer, status=replace(answer.status, faults=[fault])))
    assert (first.cause, first.place) == ("disk", fault.path)
    assert (
        first.text
        == "/runs/named/kept.sqlite cannot be written: database or disk is full; it is lost"
    )
    assert "df -h /runs/named/kept.sqlite" in first.next_step


def test_a_folder_that_is_full_is_told_and_one_with_room_or_none_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(full_folder(str(tmp_path))) == []
    assert list(full_folder("")) == list(full_folder(str(tmp_path / "none"))) == []
    found = list(os.statvfs(tmp_path))
    for field, words in (4, "0 bytes are free"), (7, "no more files can be made"):
        full = os.statvfs_result(
            [0 if number == field else value for number, value in enumerate(found)]
        )
        monkeypatch.setattr(os, "statvfs", lambda path, full=full: full)
        [fault] = full_folder(str(tmp_path))
        assert (fault.path, fault.error) == (str(tmp_path), f"No space left on device, {words}")
    for fields in (5, 6, 7), (2, 3, 4):  # one that counts no files, as Btrfs; or no room, as /proc
        uncounted = os.statvfs_result(
            [0 if number in fields else value for number, value in enumerate(found)]
        )
        monkeypatch.setattr(os, "statvfs", lambda path, it=uncounted: it)
        assert list(full_folder(str(tmp_path))) == []


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("call 7 of f", ("call 7 of f", "7")),
        ("job night run", ("job night run", "night run")),
        ("f", ("f", "f")),
        ("", ("", "")),
    ],
)
def test_a_call_has_the_names_by_which_people_know_it(call: str, names: tuple[str, str]) -> None:
    assert names_of(call) == names


BUSY = ConnectedWorkerStatus(
    *("w1", "node1", 7, "4711.1", "/logs/4711", "busy", 60.0, 1.0, None, 1, 5, 1, 0, 0)
)


def odd_causes(status: Status) -> dict[str, str]:
    return {one.cause: str(one) for one in explain(WatchAnswer(WHO, status))}


def functions(**facts: object) -> dict[str, str]:
    one = FunctionStatus("train", **facts)  # type: ignore[arg-type]
    return odd_causes(Status(running=1, waiting=5, functions=[one]))


def test_very_many_small_calls_are_told_while_there_are_more() -> None:
    assert "3,000 calls of train" in functions(done=3000, mean_seconds=1e-4)["small_calls"]
    assert "small_calls" not in functions(done=3000, mean_seconds=0.1)
    over = Status(functions=[FunctionStatus("train", done=3000, mean_seconds=1e-4)])
    assert "small_calls" not in odd_causes(over)


def test_a_process_that_grows_is_told() -> None:
    found = functions(done=30, grown_memory=300 * 1024**2, peak_memory=900 * 1024**2)
    assert "one has grown by 300 MB, to 900 MB" in found["leak"]


def test_workers_of_which_nothing_is_heard_are_told_though_others_work() -> None:
    silent = replace(BUSY, phase="silent", heard_seconds=40.0)
    status = Status(running=2, workers=[silent], worker_count=2, statuses={"silent": 1, "busy": 1})
    assert "1 of 2 workers" in odd_causes(status)["silent"]
    assert "node1 (cluster job 4711.1), for 40.0 s" in odd_causes(status)["silent"]


def test_a_silent_worker_is_told_before_suspended_ones() -> None:
    silent = replace(BUSY, phase="silent", heard_seconds=40.0)
    suspended = replace(silent, heard_seconds=50.0, host="node2", suspended=True)
    status = Status(workers=[suspended, silent], worker_count=2, statuses={"silent": 2})
    assert "node1 (cluster job 4711.1), for 40.0 s" in odd_causes(status)["silent"]


@pytest.mark.parametrize(("left", "words"), [(90.0, "00:01:30"), (0.0, "0.0 s"), (-5.0, "0.0 s")])
def test_a_worker_whose_time_ends_is_told_though_it_is_over(left: float, words: str) -> None:
    ending = replace(BUSY, left_seconds=left)
    later = replace(BUSY, host="node2", left_seconds=100.0)
    found = odd_causes(Status(running=2, workers=[later, BUSY, ending], worker_count=3))
    assert f"node1 (cluster job 4711.1) leaves in {words}," in found["walltime"]


def test_a_worker_that_has_time_left_is_not_told() -> None:
    assert "walltime" not in odd_causes(
        Status(running=1, workers=[replace(BUSY, left_seconds=120.0)])
    )
