"""Plant faults in the package, one at a time, and note which lane of the tests finds each: how much
power the tests have is measured, not believed.

    .venv/bin/python -m tests.power                      # all, as far as `make test` goes
    .venv/bin/python -m tests.power --lanes all --clusters --write
    .venv/bin/python -m tests.power --faults "a retry is counted"

Each fault of `faults.toml` is planted in a copy of the tree, where the lanes run from the quickest
on, and stop at the first test that fails. Outcomes are kept in `.reports/power.json`: a run adds to
them, and `--write` makes the table of README.md of them. On clusters the copy's package is
installed for the clusters' plain user, in the environment that GRIDENGINE_TEST_PYTHON names.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KEPT = ROOT / ".reports" / "power.json"
PAGE = HERE / "README.md"
FOUND = "<!-- found -->"
LOCAL = "not grid_engine and not slurm"
LANES: dict[str, list[list[str]]] = {
    "unit": [["tests/unit", "tests/property"]],
    "test": [["tests/contract", "-m", LOCAL], ["tests/integration", "-m", f"promise and {LOCAL}"]],
    "clusters": [["tests/contract", "-m", "grid_engine or slurm"]],
    "all": [["tests/integration", "-m", f"not promise and {LOCAL}"]],
}
"""What pytest is given, in turn, in each lane. `make test` is the first three."""
MAKE_TEST = ("unit", "test", "clusters")
ALWAYS = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line"]
HANG_SECONDS = {"unit": 30, "test": 120, "clusters": 240, "all": 240}
"""After how many seconds a test of a lane counts as failed: a fault may have it wait for ever."""
IN_TURN = "--deselect=tests/unit/test_power.py"  # which finds any fault, by its text alone
NOTHING_SELECTED = 5
LIMIT_SECONDS = 1200.0


def main() -> None:
    arguments = parser().parse_args()
    faults = tomllib.loads((HERE / "faults.toml").read_text())["fault"]
    chosen = [one for one in faults if one["name"] in (arguments.faults or [one["name"]])]
    lanes = [*LANES][: [*LANES].index(arguments.lanes) + 1]
    if not arguments.clusters:
        lanes = [lane for lane in lanes if lane != "clusters"]
    outcomes = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    with tempfile.TemporaryDirectory(prefix="gridengine-power.") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(arguments.jobs):
            copies.put(copied(Path(folder, str(number))))
        if not arguments.unchecked:
            check_unplanted(copies)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            plays = [pool.submit(played, one, lanes, copies) for one in chosen]
            for play in as_completed(plays):
                name, outcome = play.result()
                outcomes[name] = outcome
                KEPT.parent.mkdir(exist_ok=True)
                KEPT.write_text(json.dumps(outcomes, indent=1))
                print(f"{outcome['lane'] or 'NOT FOUND':10} {name}: {outcome['test']}", flush=True)
    if arguments.write:
        write(faults, outcomes)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.power")
    made.add_argument("--faults", nargs="+", metavar="NAME", help="these alone")
    made.add_argument("--lanes", choices=[*LANES], default="test", help="the last lane to run")
    made.add_argument("--clusters", action="store_true", help="the contract on clusters too")
    made.add_argument("--jobs", type=int, default=2, help="how many copies run at once")
    made.add_argument("--unchecked", action="store_true", help="the unplanted tests are known good")
    made.add_argument("--write", action="store_true", help="write the table of README.md")
    return made


def copied(copy: Path) -> Path:
    """Copy what git knows of the tree, and what is new in it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    copy.mkdir()
    copy.parent.chmod(0o755)  # the clusters' user reads it
    packed = subprocess.run(
        ["tar", "--create", "--null", "--files-from=-", "--ignore-failed-read"],
        cwd=ROOT,
        input=files,
        capture_output=True,
        check=False,
    )
    subprocess.run(["tar", "--extract"], cwd=copy, input=packed.stdout, check=True)
    return copy


def check_unplanted(copies: SimpleQueue[Path]) -> None:
    """Refuse to go on where tests fail without a fault."""
    copy = copies.get()
    if failed := failing_test(copy, LANES["unit"][0], "unit"):
        sys.exit(f"without any fault this fails: {failed}")
    copies.put(copy)


def played(
    fault: dict[str, str], lanes: list[str], copies: SimpleQueue[Path]
) -> tuple[str, dict[str, Any]]:
    """Plant a fault in a copy, and return its name with the lane and the test that found it."""
    copy, began = copies.get(), time.monotonic()
    file = copy / fault["file"]
    whole = file.read_text()
    try:
        file.write_text(planted(fault, whole))
        for lane in lanes:
            for tests in [*mirrored(fault, lane), *LANES[lane]]:
                if failed := failing_test(copy, tests, lane):
                    return fault["name"], outcome_of(lane, failed, began)
        return fault["name"], outcome_of("", "", began)
    finally:
        file.write_text(whole)
        copies.put(copy)


def planted(fault: dict[str, str], whole: str) -> str:
    """Return a file's text with the fault in it."""
    if whole.count(fault["old"]) != 1:
        raise ValueError(f"{fault['name']}: `old` must stand once in {fault['file']}")
    return whole.replace(fault["old"], fault["new"])


def outcome_of(lane: str, test: str, began: float) -> dict[str, Any]:
    return {"lane": lane, "test": test, "seconds": round(time.monotonic() - began)}


def mirrored(fault: dict[str, str], lane: str) -> Iterator[list[str]]:
    """Yield the unit tests that mirror the fault's room: most faults end there within seconds."""
    folder = Path("tests/unit", Path(fault["file"]).parent.relative_to("gridengine"))
    if lane == "unit" and (ROOT / folder).is_dir():
        yield [str(folder)]


def failing_test(copy: Path, tests: list[str], lane: str) -> str:
    """Return the first test that fails in a copy, or why they did not end; empty when all pass."""
    if not (copy / tests[0]).exists():
        return ""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": ""}
    if lane == "clusters":
        install = [ROOT / "tools" / "install", python_home(), "--no-deps", "."]
        subprocess.run(install, cwd=copy, check=True)
    limit = f"--timeout={HANG_SECONDS[lane]}"
    command = [sys.executable, "-m", "pytest", *ALWAYS, limit, IN_TURN, *tests]
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "the tests did not end"
    if done.returncode in (0, NOTHING_SELECTED):
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    return found[1] if found else f"pytest ended with status {done.returncode}"


def python_home() -> Path:
    """Return the environment of the clusters' plain user."""
    return Path(os.environ["GRIDENGINE_TEST_PYTHON"]).parents[1]


def write(faults: list[dict[str, str]], outcomes: dict[str, dict[str, Any]]) -> None:
    """Write the table of all faults into README.md, below its introduction."""
    known = [(one, outcomes.get(one["name"], {})) for one in faults]
    quick = sum(outcome.get("lane") in MAKE_TEST for _, outcome in known)
    total = sum(bool(outcome.get("lane")) for _, outcome in known)
    rows = [
        f"`make test` finds {quick} of {len(faults)}, all lanes find {total}.",
        "",
        "| fact that the fault breaks | origin | file | lane | test |",
        "|---|---|---|---|---|",
        *(
            f"| {fault['name']} | {fault['origin'].partition(' ')[0]} "
            f"| `{fault['file'].removeprefix('gridengine/')}` | {lane_words(outcome)} "
            f"| {test_words(outcome)} |"
            for fault, outcome in known
        ),
    ]
    text = PAGE.read_text().partition(FOUND)[0]
    PAGE.write_text("\n".join([text + FOUND, "", *rows, ""]))


def lane_words(outcome: dict[str, Any]) -> str:
    lane = outcome.get("lane", "not run")
    return "`make test`" if lane in MAKE_TEST else "`make test-all`" if lane == "all" else lane


def test_words(outcome: dict[str, Any]) -> str:
    path, _, name = outcome.get("test", "").partition("::")
    return (
        f"`{Path(path).parent.name}/{Path(path).name}` `{name.partition('[')[0]}`" if name else path
    )


if __name__ == "__main__":
    main()
