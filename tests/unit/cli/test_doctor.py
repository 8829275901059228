"""What a look at this machine's schedulers means."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import msgspec
import pytest
from click.testing import CliRunner

from gridengine._version import __version__
from gridengine.cli import doctor
from gridengine.cli.doctor import is_broken, judge
from gridengine.cli.main import main
from gridengine.dispatcher.standalone.dispatcher_folder import DispatcherFolder, StartOptions
from gridengine.journal.lock_file import Holder, LockFile
from gridengine.schedulers import default
from gridengine.schedulers.checks import CheckState, Finding
from gridengine.schedulers.detect import JOBS
from gridengine.schedulers.registry import BY_NAME, STARTERS, SchedulerEntry
from gridengine.wire import sockets
from gridengine.wire.connection_file import write_private

FINE = Finding("processes", "job", CheckState.OK, "returned")
READ = Finding("here", "settings", CheckState.OK, "read")
NO_SLURM = Finding("slurm", "commands", CheckState.ABSENT, "there is no sbatch")
NO_MASTER = Finding("grid_engine", "master", CheckState.BROKEN, "does not answer", "start it")


@pytest.mark.parametrize(
    ("findings", "broken"),
    [
        ([FINE], False),
        ([FINE, NO_SLURM], False),
        ([READ, NO_SLURM], True),
        ([FINE, NO_MASTER], True),
        ([NO_MASTER], True),
        ([Finding("here", "settings", CheckState.BROKEN, "wrong"), FINE], True),
    ],
)
def test_a_missing_system_is_wrong_only_when_it_was_asked_for(
    findings: list[Finding], broken: bool
) -> None:
    assert is_broken(findings) is broken


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The schedulers on which a job was tried, with its options. Nothing else is looked at."""
    found: dict[str, object] = {}

    def try_job(name: str, environment: object, wait: float, **options: object) -> Finding:
        found[name] = options
        return FINE

    monkeypatch.setattr(doctor, "try_job", try_job)
    monkeypatch.setattr(SchedulerEntry, "findings", lambda *_: ())
    for name in JOBS:
        monkeypatch.delenv(name, raising=False)
    return found


@pytest.mark.parametrize(
    ("asked", "looked_at"), [(None, ["processes"]), ("inline", ["inline"]), ("slurm", ["slurm"])]
)
def test_the_scheduler_of_the_settings_is_looked_at_alone_unless_another_is_asked_for(
    asked: str | None,
    looked_at: list[str],
    tried: dict[str, object],
    configure: Callable[..., None],
) -> None:
    configure(scheduler="processes")
    found = list(doctor.examine(asked, os.environ, wait=1))
    assert list(tried) == looked_at
    assert "GRIDENGINE_SCHEDULER says processes" in found[1].text


@pytest.mark.parametrize(
    ("name", "system", "words"),
    [
        ("processes", default.THIS_MACHINE, "run on this machine"),
        ("slurm", "Slurm", "run on Slurm; GRIDENGINE_SCHEDULER=processes keeps them here"),
    ],
)
def test_the_default_scheduler_is_told_last_unless_one_is_set(
    name: str,
    system: str,
    words: str,
    tried: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GRIDENGINE_SCHEDULER", raising=False)
    monkeypatch.setattr(default, "_best", lambda: (BY_NAME[name], system))
    *_, last = doctor.examine(None, os.environ, wait=1)
    assert last.text.endswith(words)
    *_, last = doctor.examine("processes", os.environ, wait=1)
    assert last == FINE


@pytest.mark.parametrize("state", [CheckState.OK, CheckState.BROKEN])
def test_jobs_are_tried_in_the_python_of_the_nodes_if_it_runs_here(
    state: CheckState, tried: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Finding("here", "python of workers", state, "")
    monkeypatch.setattr(doctor, "check_interpreter", lambda *_, **nodes: found)
    told = list(doctor.examine("slurm", os.environ, wait=1, python=["uv", "run"]))
    assert found in told
    assert tried == ({"slurm": {"python": ["uv", "run"]}} if state is CheckState.OK else {})


@pytest.mark.usefixtures("tried")
def test_in_a_batch_job_doctor_shows_the_resources_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n1", "SLURM_CPUS_ON_NODE": "4"}
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    told = [one.text for one in doctor.examine("processes", os.environ, wait=1)]
    assert any(text.startswith("this process has the 4 cores of Slurm job 12") for text in told)


def test_with_settings_that_cannot_be_read_no_scheduler_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRIDENGINE_MAX_WROKERS", "4")
    found = list(doctor.examine(None, os.environ, wait=1))
    assert [(one.of, one.check, one.state) for one in found[1:]] == [
        ("here", "settings", CheckState.BROKEN),
        *((name, "job", CheckState.ABSENT) for name in STARTERS),
    ]


def test_scripts_read_the_same_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDENGINE_MAX_WROKERS", "4")
    result = CliRunner().invoke(main, ["doctor", "--json"])
    assert result.exit_code == 1
    told, found = json.loads(result.stdout), list(doctor.examine(None, os.environ, wait=1))
    assert (told["ok"], len(told["findings"])) == (False, len(found))
    assert told["findings"][1] == {
        "of": "here",
        "check": "settings",
        "state": "broken",
        "text": found[1].text,
        "remedy": found[1].remedy,
    }


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ((3, 11, 2), ""),
        ((3, 15, 0), ""),
        ((3, 16, 1), "; tested are 3.11 to 3.15"),
    ],
)
def test_a_python_that_is_not_tested_is_told(version: tuple[int, ...], words: str) -> None:
    found = doctor.check_python(version, is_free=False, has_lock=True)
    assert found.state is CheckState.OK
    assert found.text.startswith(".".join(map(str, version)))
    assert words in found.text
    assert bool(words) == ("tested" in found.text)


def test_a_free_threaded_python_is_told_and_whether_something_has_turned_its_lock_on() -> None:
    free, locked = (
        doctor.check_python((3, 14, 1), is_free=True, has_lock=has_lock)
        for has_lock in (False, True)
    )
    assert free.text.endswith("; free-threaded")
    assert locked.text.endswith(
        "; free-threaded, and yet with a lock: a package or PYTHON_GIL wants it"
    )


def test_classifiers_and_the_readme_name_the_pythons_that_are_tested() -> None:
    (_, first), (_, last) = doctor.TESTED_PYTHONS
    named = [f"3.{minor}" for minor in range(first, last + 1)]
    root = Path(__file__).parents[3]
    metadata = (root / "setup.cfg").read_text()
    assert re.findall(r"Python :: (3\.\d+)", metadata) == named
    words = " ".join((root / "README.md").read_text().split())
    assert f"{', '.join(named[:-1])} and {named[-1]}" in words


@pytest.mark.parametrize(("rate", "state"), [(30e6, CheckState.SLOW), (400e6, CheckState.OK)])
def test_a_slow_encryption_is_told_with_the_remedy_and_breaks_nothing(
    rate: float, state: CheckState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "encrypted_bytes_per_second", lambda: rate)
    finding = doctor.check_encryption()
    assert finding.state is state
    assert f"{rate / 1e6:.0f} MB for each second of a processor (pyzmq " in finding.text
    assert ("pyzmq>=27.3" in finding.remedy) == (state is CheckState.SLOW)
    assert not is_broken([READ, finding])


def test_a_full_disk_is_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *exc_info: object) -> None:
            pass

        def write(self, content: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", lambda **_: Full())
    finding = doctor._check_run_directory(tmp_path)
    assert finding.state is CheckState.BROKEN
    assert "No space left on device" in finding.text
    assert "make room" in finding.remedy


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def folder(
    tmp_path: Path, listener: socket.socket, configure: Callable[..., None]
) -> DispatcherFolder:
    configure(run_directory=tmp_path)
    address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    made = DispatcherFolder.of("sweeps")
    made.make()
    write_private(made.options_file, msgspec.json.encode(StartOptions("slurm")))
    write_private(made.client_file, msgspec.json.encode({"addresses": [address]}))
    return made


def run(folder: DispatcherFolder, version: str = __version__) -> LockFile:
    """Have a dispatcher be run by this process."""
    lock = folder.take_lock()
    lock.write(msgspec.structs.replace(Holder.here(), version=version))
    return lock


def only() -> Finding:
    [found] = doctor.findings()
    assert found.check == "dispatcher sweeps"
    return found


def test_an_ended_dispatcher_is_nothing_to_tell(folder: DispatcherFolder) -> None:
    assert list(doctor.findings()) == []


def test_a_dispatcher_that_answers_is_fine(folder: DispatcherFolder) -> None:
    run(folder)
    assert only().state is CheckState.OK


def test_a_killed_dispatcher_is_told_with_its_user(folder: DispatcherFolder) -> None:
    run(folder).close()
    found = only()
    assert found.state is CheckState.BROKEN
    assert "was killed: process" in found.text
    assert "gridengine dispatcher start sweeps" in found.remedy


def test_a_silent_dispatcher_is_told_with_its_addresses(
    folder: DispatcherFolder, listener: socket.socket
) -> None:
    run(folder)
    listener.close()
    found = only()
    assert f"does not answer at {folder.addresses()[0]}" in found.text
    assert "gridengine dispatcher stop --now sweeps" in found.remedy


def test_a_dispatcher_of_another_version_is_to_be_restarted(folder: DispatcherFolder) -> None:
    run(folder, "0.0.1")
    found = only()
    assert f"runs gridengine 0.0.1, and this is {__version__}" in found.text
    assert found.remedy == "gridengine dispatcher restart sweeps"


@pytest.mark.parametrize("name", ["client.json", "."])
def test_files_that_others_may_look_at_are_named(folder: DispatcherFolder, name: str) -> None:
    (folder.path / name).chmod(0o755)
    found = only()
    assert str(folder.path / name) in found.text
    assert "server.json" in found.remedy


def test_options_that_cannot_be_read_are_told(folder: DispatcherFolder) -> None:
    folder.options_file.write_bytes(b"{")
    assert "cannot be read" in only().text


@pytest.mark.parametrize(
    ("output", "errors", "state", "words"),
    [
        ('{"host": "node7", "seconds": 0.42}\n', "", CheckState.OK, "returned from node7 in 0.4 s"),
        ('a line of a prologue\n{"host": "node7", "seconds": 0.42}\n', "", CheckState.OK, "node7"),
        ('{"error": "refused: no", "hint": null}\n', "", CheckState.BROKEN, "refused: no"),
        ("", "Traceback\nValueError: odd\n", CheckState.BROKEN, "ValueError: odd"),
        ("", "", CheckState.BROKEN, "died"),
    ],
)
def test_output_of_the_trial_job_decides(
    output: str, errors: str, state: CheckState, words: str
) -> None:
    finding = judge("grid_engine", output, errors, 1.0)
    assert finding.state is state
    assert words in finding.text
    assert bool(finding.remedy) == (state is CheckState.BROKEN)
