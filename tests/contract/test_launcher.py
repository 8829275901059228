"""The launcher of a place by itself: workers are started, watched, explained and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.contract import PROMISES, at, everywhere
from tests.support.launching import run
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.places import Place

AWKWARD = "a röm 'x %j %a {0}"
"""A folder's name with blanks, accents, and what some batch system takes for a placeholder."""
LIVES = """
WORKER = r'''
echo "$@"
readlink /proc/self/fd/1 /proc/self/fd/2
cd "$(dirname "$0")"
for ending in "exit 0" "exit 3" 'kill -9 $$'; do
    mkdir "$ending" 2>/dev/null && break
done
while ! [[ -e go ]]; do sleep 0.05; done
eval "$ending"
'''
context = make_run(AWKWARD)
launcher = make_launcher(WORKER, run=context)
handles = launcher.launch(3)
running = wait_for(launcher, handles, {WorkerStatus.RUNNING})
Path("go").touch()
ends = wait_for(launcher, handles)
more = launcher.launch(2)
wait_for(launcher, more[:1], {WorkerStatus.RUNNING} | ENDS)
launcher.close()
launcher.close()
tell(
    running=[report.state.value for report in running.values()],
    ends=sorted((one.state.value, one.reason, one.deleted) for one in ends.values()),
    errors=[str(report.error) for report in ends.values()],
    logs=[handle.log for handle in handles],
    texts=[Path(handle.log).read_text() for handle in handles if handle.log],
    left=sorted(path.name for path in context.directory.iterdir()),
    jobs=sorted({number_of(handle) for handle in handles + more}),
)
"""


@pytest.fixture(scope="module")
def lives(place: Place) -> dict[str, Any]:
    """What three workers were seen to do, which end in three ways, and two that a close ends."""
    return run(place, f"AWKWARD = {AWKWARD!r}\n{LIVES}")


@everywhere
def test_a_worker_waits_runs_and_ends_and_the_reason_is_told(
    place: Place, lives: dict[str, Any]
) -> None:
    assert lives["running"] == ["running"] * 3
    states = {"exit 0": "ended", "exit 3": "failed", "kill -9 $$": "failed"}
    assert lives["ends"] == sorted([states[how], why, False] for how, why in place.ends.items())
    for words in place.ends.values():
        assert any(words in error for error in lives["errors"])


@everywhere
def test_nothing_is_left_when_a_launcher_was_closed(place: Place, lives: dict[str, Any]) -> None:
    assert set(lives["left"]) <= {"connection", "logs"}
    wait_until(lambda: not any(map(place.knows, lives["jobs"])))


@at(lambda kind: kind.has_logs)
def test_each_worker_s_output_goes_to_its_log_in_a_folder_of_any_name(
    place: Place, lives: dict[str, Any]
) -> None:
    assert len(set(lives["logs"])) == 3
    folder = lives["logs"][0].rpartition("/logs/")[0]
    assert folder.endswith(f"/{AWKWARD}")
    assert lives["texts"] == [
        f"-P -m gridengine.worker {folder}/connection\n{log}\n{log}\n" for log in lives["logs"]
    ]


QUEUE = """
import subprocess


@promise
def refused():
    said = {}
    for given in REFUSED:
        launcher = eval(f"make_launcher(run=make_run(), {given})")
        try:
            launcher.launch(2)
        except Exception as error:
            said[given] = [type(error).__name__, str(error)]
        finally:
            launcher.close()
    return said


@promise
def deleted():
    running, waiting = make_launcher(run=make_run()), make_launcher(run=make_run(), **CLOSED)
    handles = running.launch(1) + waiting.launch(1)
    wait_for(running, handles[:1], {WorkerStatus.RUNNING})
    jobs = [number_of(handle) for handle in handles]
    subprocess.run([*DELETE.split(), *jobs], check=True, stdout=subprocess.DEVNULL)
    found = wait_for(running, handles[:1]) | wait_for(waiting, handles[1:])
    running.close()
    waiting.close()
    reports = [found[handle] for handle in handles]
    errors = [(type(report.error).__name__, str(report.error)) for report in reports]
    return [report.deleted for report in reports], errors


@promise
def split():
    launcher = make_launcher(run=make_run(), **CLOSED)
    handles = launcher.launch(LARGEST + 203)
    known = launcher.poll(handles[-1203:])
    launcher.close()
    jobs = {number_of(handle) for handle in handles}
    logs = {handle.log for handle in handles}
    return [len(set(handles)), len(logs), len(jobs), len(known) > 0], sorted(jobs)


tell(**kept)
"""
with_a_queue = at(lambda kind: kind.has_queue)


@pytest.fixture(scope="module")
def queue(place: Any) -> dict[str, Any]:
    """What a batch system did about requests, deletions and a large array."""
    names = f"""
REFUSED, CLOSED = {list(place.refused)}, dict({place.closed})
DELETE, LARGEST = {place.delete_command!r}, {place.largest_array()}
"""
    return run(place, PROMISES + names + QUEUE)


@with_a_queue
def test_an_impossible_request_is_refused_at_once_in_the_system_s_words(
    place: Place, queue: dict[str, Any]
) -> None:
    assert queue["refused"].keys() == place.refused.keys(), queue["refused"]
    for given, words in place.refused.items():
        kind, text = queue["refused"][given]
        assert (kind, words in text) == ("SubmissionRefused", True), text


@with_a_queue
def test_workers_that_somebody_deletes_are_reported_as_deleted_whether_they_ran_or_waited(
    place: Place, queue: dict[str, Any]
) -> None:
    deleted, errors = queue["deleted"]
    assert deleted == [True, True]
    assert [kind for kind, _ in errors] == ["JobDeleted", "JobDeleted"]
    assert place.deleted in errors[0][1]


@with_a_queue
def test_an_array_larger_than_the_site_allows_is_split_and_nothing_of_it_is_left(
    place: Any, queue: dict[str, Any]
) -> None:
    largest = place.largest_array()
    counts, jobs = queue["split"]
    count = 2 if place.array_is_one_job else largest + 203
    assert counts == [largest + 203, largest + 203, count, True]
    some = jobs[:: max(1, len(jobs) // 20)]
    wait_until(lambda: not any(map(place.knows, some)))
