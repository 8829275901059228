"""Plant faults in the package, one at a time, and note which lane of the tests finds each: how much
power the tests have is measured, not believed.

    .venv/bin/python -m tests.power --lanes unit              # minutes
    .venv/bin/python -m tests.power --faults "an error arrives with its remedy"
    .venv/bin/python -m tests.power --lanes all --clusters --write

Each fault of `faults.toml` is planted in a copy of the tree, where the lanes run from the quickest
on and stop at the first test that fails. The copy has an environment of its own, a copy by hard
links of `.venv`, so that all processes that tests start have the copy's package. On clusters it
also has one of the environment that GRIDENGINE_TEST_PYTHON names, for the clusters' plain user.

Outcomes are kept in `.reports/power.json`: each run adds its own, and `--write` makes the table of
README.md of them. `.venv-darwin/bin/python -m tests.power` has the lanes run as `make test-darwin`
does, and keeps its outcomes in `.reports/power-darwin.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KEPT = ROOT / ".reports" / f"power{Path(sys.prefix).name.removeprefix('.venv')}.json"
PAGE = HERE / "README.md"
FOUND = "<!-- found -->"


@dataclass(frozen=True, slots=True)
class Lane:
    """What pytest is given. `command` is the one of the Makefile that runs the lane; `depth` is up
    to which of `--lanes` it runs; a fault may have a test wait for ever, which counts as failed
    after `hang_seconds`.
    """

    name: str
    command: str
    depth: str
    arguments: tuple[str, ...]
    hang_seconds: int
    on_clusters: bool = False


LOCAL, CLUSTERS = "not grid_engine and not slurm", "(grid_engine or slurm)"
LANES = (
    Lane("unit", "make test", "unit", ("tests/unit", "tests/property"), 60),
    Lane("contract", "make test", "test", ("tests/contract", "-m", LOCAL), 120),
    Lane("promise", "make test", "test", ("tests/integration", "-m", f"promise and {LOCAL}"), 120),
    Lane("clusters", "make test", "test", ("tests/contract", "-m", CLUSTERS), 240, True),
    Lane(
        "integration",
        "make test-all",
        "all",
        ("tests/integration", "tests/conformance", "-m", f"not promise and {LOCAL}"),
        240,
    ),
    Lane(
        "integration on clusters",
        "make test-all",
        "all",
        ("tests/integration", "-m", f"not promise and {CLUSTERS}"),
        400,
        True,
    ),
)
DEPTHS = ("unit", "test", "all")
PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-rfE")
OWN_TEST = "--deselect=tests/unit/test_power.py"  # it finds any fault, by its text alone
NOTHING_SELECTED = 5
LIMIT_SECONDS = 3600.0
Fault = dict[str, str]
one_at_a_time = threading.Lock()
"""Tests on clusters count the jobs of their user: one run at a time."""


def main() -> None:
    arguments = parser().parse_args()
    faults: list[Fault] = tomllib.loads((HERE / "faults.toml").read_text())["fault"]
    names = {one["name"] for one in faults}
    if unknown := set(arguments.faults or ()) - names:
        sys.exit(f"faults.toml has no {', '.join(map(repr, sorted(unknown)))}")
    chosen = [one for one in faults if one["name"] in (arguments.faults or names)]
    depths = DEPTHS[: DEPTHS.index(arguments.lanes) + 1]
    lanes = [
        one for one in LANES if one.depth in depths and (arguments.clusters or not one.on_clusters)
    ]
    outcomes = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    with tempfile.TemporaryDirectory(prefix="gridengine-power.") as folder:
        Path(folder).chmod(0o755)  # the clusters' plain user reads it
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(arguments.jobs):
            copies.put(Copy(Path(folder, str(number)), arguments.jobs, arguments.clusters))
        check_unplanted(lanes, copies)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            plays = [pool.submit(played, one, lanes, copies) for one in chosen]
            for number, play in enumerate(as_completed(plays), 1):
                name, outcome = play.result()
                if outcome["lane"] or not outcomes.get(name, {}).get("lane"):
                    outcomes[name] = outcome
                KEPT.parent.mkdir(exist_ok=True)
                KEPT.write_text(json.dumps(outcomes, indent=1))
                found = outcome["lane"] or "NOT FOUND"
                seconds, test = outcome["seconds"], outcome["test"]
                print(f"{number}/{len(plays)} {found}, {seconds} s: {name}: {test}", flush=True)
    if arguments.write:
        write(faults, {name: outcomes[name] for name in outcomes.keys() & names})


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.power")
    made.add_argument("--faults", nargs="+", metavar="NAME", help="these alone")
    made.add_argument("--lanes", choices=DEPTHS, default="test", help="how far to go")
    made.add_argument("--clusters", action="store_true", help="the lanes on clusters too")
    made.add_argument("--jobs", type=int, default=2, help="how many copies run at once")
    made.add_argument("--write", action="store_true", help="write the table of README.md")
    return made


class Copy:
    """A copy of the tree, with environments of its own.

    Args:
        folder: where it is made.
        jobs: how many copies run at once: each has its share of the cores.
        clusters: whether tests run on clusters, too.
    """

    def __init__(self, folder: Path, jobs: int, clusters: bool) -> None:
        self.folder = folder
        processes = (os.cpu_count() or 1) // jobs
        self._spread = ["--numprocesses", str(processes), "--dist=loadgroup"] * (processes > 1)
        folder.mkdir()
        # What git knows, and what is new. Some of it may have been removed.
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.split(
            b"\0"
        ):
            source, target = ROOT / os.fsdecode(name), folder / os.fsdecode(name)
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        self._python = self._environment(Path(sys.executable), folder / ".venv")
        self._plain_python = (
            self._environment(Path(os.environ["GRIDENGINE_TEST_PYTHON"]), folder / ".venv-plain")
            if clusters
            else None
        )

    def _environment(self, python: Path, target: Path) -> Path:
        """Copy the environment of a Python, with this copy's package in the place of its own, and
        return the Python of that.
        """
        source = python.parents[1].resolve()
        subprocess.run(["cp", "--archive", "--link", source, target], check=True)
        [packages] = target.glob("lib/python*/site-packages")
        for old in (*packages.glob("__editable__*gridengine*"), packages / "gridengine"):
            shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
        (packages / "gridengine.pth").write_text(f"{self.folder}\n")
        for script in (target / "bin").iterdir():
            if not script.is_symlink() and script.read_bytes().startswith(b"#!"):
                text = script.read_text().replace(f"{source}/", f"{target}/")
                script.unlink()  # it is linked, and the other is to stay
                script.write_text(text)
                script.chmod(0o755)
        return target / "bin" / python.name

    @contextlib.contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """Have the fault within."""
        file = self.folder / fault["file"]
        whole = file.read_text()
        if whole.count(fault["old"]) != 1:
            sys.exit(f"{fault['name']}: `old` must stand once in {fault['file']}")
        try:
            self._replace(file, whole.replace(fault["old"], fault["new"]))
            yield
        finally:
            self._replace(file, whole)
            self._end_left()
            shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)

    def _end_left(self) -> None:
        """Kill what the fault has had outlive the tests."""
        for process in psutil.process_iter(["cmdline"]):
            if next(iter(process.info["cmdline"] or ()), "").startswith(f"{self.folder}/"):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def _replace(self, file: Path, text: str) -> None:
        file.write_text(text)
        # Bytecode is told apart by the second in which its source was written, and its size.
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
            compiled.unlink()

    def failing_test(self, lane: Lane, tests: tuple[str, ...], *, whole: bool = True) -> str:
        """Return the first test that fails, alone too, or why the tests did not end; empty when all
        pass.
        """
        others = list[str]()
        while failed := self._first_failed(lane, (*tests, *others), whole=whole):
            if "::" not in failed or self._first_failed(lane, (failed,), whole=False):
                return failed
            others.append(f"--deselect={failed}")  # it has failed by chance
        return ""

    def _first_failed(self, lane: Lane, tests: tuple[str, ...], *, whole: bool) -> str:
        spread = self._spread if whole and not lane.on_clusters else []
        limit = f"--timeout={lane.hang_seconds}"
        command = [self._python, "-m", "pytest", *PYTEST, limit, OWN_TEST, *spread, *tests]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "VIRTUAL_ENV": ""}
        if self._plain_python is not None:
            environment["GRIDENGINE_TEST_PYTHON"] = str(self._plain_python)
        run = functools.partial(
            subprocess.run,
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        try:
            with one_at_a_time if lane.on_clusters else contextlib.nullcontext():
                done = run()
        except subprocess.TimeoutExpired:
            return "the tests did not end"
        if done.returncode in (0, NOTHING_SELECTED):
            return ""
        found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, flags=re.MULTILINE)
        return found[1] if found else f"pytest ended with status {done.returncode}"

    def mirrored(self, fault: Fault, lane: Lane) -> tuple[str, ...]:
        """Return the tests of a lane's first folder that mirror the fault's room: most faults end
        there within seconds.
        """
        [first, *_], marks = lane.arguments, lane.arguments[-2:]
        inside = Path(fault["file"]).relative_to("gridengine")
        for path in (Path(first, inside.parent), Path(first, f"test_{inside.name}")):
            if path != Path(first) and (self.folder / path).exists():
                return str(path), *(marks if marks[0] == "-m" else ())
        return ()


def check_unplanted(lanes: list[Lane], copies: SimpleQueue[Copy]) -> None:
    """Refuse to go on where tests fail without a fault."""
    copy = copies.get()
    for lane in lanes:
        if failed := copy.failing_test(lane, lane.arguments):
            sys.exit(f"without any fault this fails: {failed}")
    copies.put(copy)


def played(
    fault: Fault, lanes: list[Lane], copies: SimpleQueue[Copy]
) -> tuple[str, dict[str, Any]]:
    """Plant a fault in a copy; return its name, and the lane and the test that found it."""
    copy, began = copies.get(), time.monotonic()
    lane, failed = "", ""
    try:
        with copy.planted(fault):
            for one in lanes:
                if mirrored := copy.mirrored(fault, one):
                    failed = copy.failing_test(one, mirrored, whole=False)
                if failed := failed or copy.failing_test(one, one.arguments):
                    lane = one.name
                    break
    finally:
        copies.put(copy)
    return fault["name"], {
        "lane": lane,
        "test": failed,
        "seconds": round(time.monotonic() - began),
        "searched": [one.name for one in lanes],
    }


def write(faults: list[Fault], outcomes: dict[str, dict[str, Any]]) -> None:
    """Write the table of all faults into README.md, below its introduction."""
    commands = {one.name: one.command for one in LANES}
    lanes = [outcomes.get(one["name"], {}).get("lane", "") for one in faults]
    quick = sum(commands.get(lane) == "make test" for lane in lanes)
    kinds = ("From history", "Planted", "Drawn by lot")
    of = {kind: [one for one in faults if kind_of(one) == kind] for kind in kinds}
    left = sum(one["name"] not in outcomes for one in faults)
    text = [
        f"Of {len(faults)} faults, {len(of[kinds[0]])} from history, {len(of[kinds[1]])} planted "
        f"and {len(of[kinds[2]])} drawn by lot, `make test` finds {quick}, and all lanes find "
        f"{sum(map(bool, lanes))}{f'; {left} were not run yet' if left else ''}.",
    ]
    for title in kinds:
        text += [
            "",
            f"## {title}",
            "",
            "| fact that the fault breaks | origin | room | lane | test | s |",
        ]
        text += ["|---|---|---|---|---|---|"]
        text += [row_of(one, outcomes.get(one["name"], {})) for one in of[title]]
    PAGE.write_text("\n".join([PAGE.read_text().partition(FOUND)[0] + FOUND, "", *text, ""]))


def kind_of(fault: Fault) -> str:
    """Return the heading under which a fault stands."""
    return {"planted": "Planted", "drawn": "Drawn by lot"}.get(fault["origin"], "From history")


def row_of(fault: Fault, outcome: dict[str, Any]) -> str:
    """Return the row of the table for a fault."""
    lane, seconds = outcome.get("lane", ""), outcome.get("seconds", "")
    where = lane or (f"**none of {', '.join(outcome['searched'])}**" if outcome else "not run yet")
    path, _, test = outcome.get("test", "").partition("::")
    path = path.removeprefix("tests/")
    test = f"`{path}` `{test.partition('[')[0]}`" if test else path
    origin = fault["origin"].partition(" ")[0]
    return f"| {fault['name']} | {origin} | {fault['room']} | {where} | {test} | {seconds} |"


if __name__ == "__main__":
    main()
