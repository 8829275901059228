"""What users call, at each place: one script that calls in each way, on one worker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.contract import PROMISES, everywhere
from tests.support.scenario import QUICK, play

if TYPE_CHECKING:
    from tests.support.places import Place

SITE = '[grid_engine.tokens]\nlicence = "-q all.q"\n' + "".join(
    f'[{name}.tokens]\nlicence = ""\n' for name in ("slurm", "htcondor", "oar", "pbs", "flux")
)
EVERYDAY = """
import logging, multiprocessing
from collections import Counter
from random import random

import psutil
from gridengine import Cores, Memory, Token, WTime

said = []
logger = logging.getLogger("gridengine")
logger.setLevel(logging.INFO)
logger.addHandler(handler := logging.Handler())
handler.emit = lambda record: said.append(record.getMessage())

NAMES = "MINE", "GONE", "ADDED", "CUDA_VISIBLE_DEVICES"
os.environ.update(GONE="1", PATH="/my/bin:" + os.environ["PATH"], TMPDIR="/nowhere", DISPLAY=":7")
sys.argv = ["sweep.py", "--fast"]
os.umask(0o027)


def look(_=None):
    return [os.environ.get(name) for name in NAMES]


def of_place(_=None):
    folder = os.path.isdir(os.environ.get("TMPDIR", "/tmp"))
    return os.environ["PATH"], os.environ.get("DISPLAY"), folder


def ended(job):
    job.start()
    job.join()
    return job.result()


def square(x):
    return x * x, first_of(JOB), os.getppid()


def inc(*inputs):
    return sum(inputs) + 1


def invert(x):
    return 1 / x


def risky(x):
    if x < 0:
        raise ValueError(os.uname().nodename, first_of(JOB))
    return x


def speak(x):
    print("call", x, "speaks")


def die(how, begun=str(FOLDER / "deaths")):
    with open(begun, "a") as file:
        print(how, file=file)
    print("last words of", how, file=sys.stderr, flush=True)
    if how == "exit":
        os._exit(3)
    if isinstance(how, int):
        os.kill(os.getpid(), how)
        signal.pause()
    return how


def levels(depth):
    if not depth:
        return 1, {os.getppid()}
    counts, below = zip(*gridengine.map(levels, [depth - 1] * 2))
    return sum(counts) + 1, {os.getppid()}.union(*below)


def given():
    resources = gridengine.GVAR.res
    names = "+".join(sorted(type(part).__name__ for part in resources))
    return names + str(len(resources.c) if resources.get(Cores) else 0), os.getppid()


def change():
    os.environ["MINE"] = "changed"
    umask = os.umask(0)
    os.umask(umask)
    in_child = multiprocessing.parent_process() is not None
    return sys.argv[1:], umask, multiprocessing.current_process().name, in_child, os.getcwd()


def draw(x):
    return x, random()


def end_the_worker(mark):
    if not Path(mark).exists():
        Path(mark).touch()
        above = []
        for process in [psutil.Process(), *psutil.Process().parents()]:
            if "gridengine.worker" not in " ".join(process.cmdline()):
                break
            above.append(process)
        for process in reversed(above):  # the last is this one
            process.kill()
        signal.pause()
    return "made again"


scheduler = CLUSTER(environment={"ADDED": "1"}, **ONE_WORKER)


@promise
def maps():
    found = gridengine.map(square, range(100), scheduler=scheduler)
    return [x for x, _, _ in found], [*{job for _, job, _ in found}], len({w for *_, w in found})


@promise
def environment():
    seen = []
    for value in "01":
        os.environ.update(MINE=value, CUDA_VISIBLE_DEVICES=value)
        seen += gridengine.map(look, [0], scheduler=scheduler)
        seen.append(ended(Job(target=look, scheduler=scheduler)))
    del os.environ["GONE"], os.environ["MINE"]
    seen.append(ended(Job(target=change, name="reader", scheduler=scheduler)))
    seen.append(ended(Job(target=look, scheduler=scheduler)))
    [(path, display, has_folder)] = gridengine.map(of_place, [0], scheduler=scheduler)
    return seen, path == os.environ["PATH"], display, has_folder


@promise
def graph():
    nodes = {"one": 1, "a": (inc, "one"), "b": (inc, "one", "a"), "c": (inc, "a", "b")}
    nodes |= {"zero": 0, "bad": (invert, "zero"), "worse": (inc, "bad")}
    with gridengine.Executor(scheduler=scheduler) as executor:
        good, bad = executor.submit_graph(nodes, ["c", "worse"])
        chained = executor.submit(inc, executor.submit(inc, 1), good)
        return good.result(), chained.result(), facts_of(bad.result)["kind"]


@promise
def nested():
    [(count, workers)] = gridengine.map(levels, [4], scheduler=scheduler)
    return count, len(workers)


@promise
def streams():
    wanted = gridengine.map(draw, range(9), seed=1, scheduler="inline")
    ways = {}, {"chunksize": 4}, {"name": "streams"}
    found = [gridengine.map(draw, range(9), seed=1, scheduler=scheduler, **how) for how in ways]
    return [one == wanted for one in found], len({number for _, number in wanted})


@promise
def raises():
    try:
        gridengine.map(risky, [2.0] * 190 + [-1.5, 3.0], scheduler=scheduler)
    except ValueError as error:
        done = [one for one in error.results if isinstance(one, float)]
        return [*error.args], error.__notes__, done[:190] == [2.0] * 190


@promise
def resources():
    kinds = [Cores(1), Cores(2), Token("licence"), WTime(60), None]
    jobs = [Job(target=given, resources=kinds[i % len(kinds)]) for i in range(2 * len(kinds))]
    with gridengine.JobDispatcher(scheduler) as dispatcher:
        dispatcher.dispatch(jobs)
        results = dispatcher.join()
    return sorted({names for names, _ in results}), len({worker for _, worker in results})


@promise
def prints():
    gridengine.map(speak, range(20), scheduler=scheduler)
    ended(Job(target=speak, args=("of a job",), scheduler=scheduler))
    until = time.monotonic() + 60
    while HAS_LOGS:
        printed = "".join(path.read_text() for path in Path("runs").glob("*/logs/*.log"))
        if printed.count(" speaks") >= 20 or time.monotonic() > until:
            return printed


@promise
def crashes():
    ways = ["well", "exit", 9, "fine", 11, "good"]
    results = gridengine.map(die, ways, scheduler=scheduler, retries=1, reraise=False)
    bad = [facts(result) for result in results if not isinstance(result, str)]
    good = [result for result in results if isinstance(result, str)]
    return good, bad, Counter((FOLDER / "deaths").read_text().split())


@promise
def worker_crashes():
    with gridengine.Executor(scheduler=scheduler) as executor:
        return executor.submit(end_the_worker, str(FOLDER / "mark")).result()


folder = [str(path) for path in Path("runs").glob("*") if path.name != "named"]
scheduler.close()
tell(said=said, folder=folder, here=os.getcwd(), **kept)
"""


@pytest.fixture(scope="module")
def everyday(place: Place) -> dict[str, Any]:
    """What the script was told, by the promise; and all that it printed."""
    names = f"HAS_LOGS = {place.has_logs}\n"
    scenario = play(
        place,
        PROMISES + names + EVERYDAY.replace("**ONE_WORKER", place.one_worker),
        files={"gridengine.toml": SITE},
        environment={**QUICK, "GRIDENGINE_RUN_DIRECTORY": "runs", "PYTHONFAULTHANDLER": ""},
    )
    return {**scenario.result(), "printed": scenario.output, "errors": scenario.errors}


@everywhere
def test_a_map_has_its_results_in_order_from_one_worker_of_the_place(
    place: Place, everyday: dict[str, Any]
) -> None:
    squares, jobs, workers = everyday["maps"]
    assert squares == [x * x for x in range(100)]
    assert (len(jobs), jobs != ["none"], workers) == (1, place.has_queue, 1)


@everywhere
def test_calls_see_their_caller_s_environment_arguments_umask_and_folder(
    place: Place, everyday: dict[str, Any]
) -> None:
    seen, *rest = everyday["environment"]
    assert seen == [
        *[["0", "1", "1", place.gpus or "0"]] * 2,
        *[["1", "1", "1", place.gpus or "1"]] * 2,
        [["--fast"], 0o027, "reader", True, everyday["here"]],
        [None, None, "1", place.gpus or "1"],
    ]
    # A display and a folder for temporary files belong to a machine.
    assert rest == ([True, None, True] if place.has_queue else [True, ":7", False])


@everywhere
def test_an_executor_computes_a_graph_and_says_which_node_failed(
    place: Place, everyday: dict[str, Any]
) -> None:
    assert everyday["graph"] == [7, 10, "ZeroDivisionError"]


@everywhere
def test_calls_make_calls_on_the_worker_that_runs_them(
    place: Place, everyday: dict[str, Any]
) -> None:
    assert everyday["nested"] == [31, 1]


@everywhere
def test_calls_with_a_seed_draw_the_same_numbers_at_each_place(
    place: Place, everyday: dict[str, Any]
) -> None:
    assert everyday["streams"] == [[True] * 3, 9]


@everywhere
def test_an_exception_says_which_call_raised_it_and_where(
    place: Place, everyday: dict[str, Any]
) -> None:
    (host, job), [note], others_are_done = everyday["raises"]
    words = f"call 190 of risky, argument -1.5, on {host}"
    assert note.startswith(f"{words}, cluster job {job}" if place.has_queue else words)
    assert others_are_done


@everywhere
def test_a_worker_holds_resources_and_each_call_has_its_request(
    place: Place, everyday: dict[str, Any]
) -> None:
    assert everyday["resources"] == [["0", "Cores1", "Cores2", "Token0", "WTime0"], 1]


@everywhere
def test_output_of_calls_goes_to_their_log_and_output_of_jobs_to_their_caller(
    place: Place, everyday: dict[str, Any]
) -> None:
    words = "what calls print goes to the workers' logs below "
    if place.has_logs:
        [folder] = everyday["folder"]
        assert [one for one in everyday["said"] if re.fullmatch(f"{words}.*{folder}", one)]
    printed = everyday["prints"] if place.has_logs else everyday["printed"]
    lines = {line for line in printed.splitlines() if re.fullmatch(r"call \d+ speaks", line)}
    assert lines == {f"call {x} speaks" for x in range(20)}
    assert "call of a job speaks" in everyday["printed"].splitlines()


@everywhere
def test_calls_that_crash_are_made_again_and_then_name_how_and_the_others_are_done(
    place: Place, everyday: dict[str, Any]
) -> None:
    good, bad, begun = everyday["crashes"]
    assert good == ["well", "fine", "good"]
    assert [error["kind"] for error in bad] == ["WorkerCrashed"] * 3
    for error, words in zip(bad, ["exited with status 3", "SIGKILL", "SIGSEGV"], strict=True):
        assert words in error["text"]
        assert len(error["attempts"]) == 2
        assert error["host"]
        if place.has_logs:
            assert error["job"] in error["text"]
            assert error["log"] in error["text"]
            assert "last words of" in error["log_tail"]
    assert begun.keys() == {"well", "exit", "9", "fine", "11", "good"}
    assert {begun[how] for how in ("exit", "9", "11")} == {2}


@everywhere
def test_a_call_whose_worker_is_killed_is_made_by_another(
    place: Place, everyday: dict[str, Any]
) -> None:
    assert everyday["worker_crashes"] == "made again"
