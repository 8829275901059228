"""Which files a job is brought whose node shares none, and how its script uses them."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from gridengine.errors import ConfigurationError
from gridengine.schedulers import (
    GridEngineScheduler,
    HTCondorScheduler,
    OARScheduler,
    PBSScheduler,
    SlurmScheduler,
    brought_files,
)
from gridengine.schedulers.batch_commands import BatchCommands
from gridengine.schedulers.brought_files import BroughtFiles
from gridengine.schedulers.htcondor import HTCondorCommands
from gridengine.schedulers.pbs import PBSCommands


@pytest.fixture(autouse=True)
def no_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEX", raising=False)


def test_an_interpreter_that_nodes_have_is_run_by_its_path(tmp_path: Path) -> None:
    for words in ("/opt/bin/python", ("uv", "run", "python")):
        found = brought_files.brought_files(words)
        assert (list(found.words), found.files) == (
            [words] if isinstance(words, str) else [*words],
            (),
        )


def test_the_one_file_and_an_archive_are_brought_and_made_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, words in (("a.pyz", ["./a.pyz"]), ("e.tar.gz", ["unpacked-environment/bin/python"])):
        Path(name).touch()
        found = brought_files.brought_files(name)
        assert found.words == words
        assert found.files == [tmp_path / name]
    assert brought_files.brought_files("a.pyz").unpacking == ["chmod u+x a.pyz"]


def test_an_archive_that_cannot_be_unpacked_ends_the_script_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = 'e "$(echo x)".tar.gz'
    Path(name).write_text("no archive")
    lines = "\n".join([*brought_files.brought_files(name).lines, "echo goes on"])
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the worker could not be started on" in done.stdout
    assert f"{name} cannot be unpacked" in done.stdout
    assert "goes on" not in done.stdout


def test_a_script_of_the_one_file_has_its_workers_use_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gridengine.pyz").touch()
    monkeypatch.setenv("PEX", str(tmp_path / "gridengine.pyz"))
    assert brought_files.brought_files(None).files == [tmp_path / "gridengine.pyz"]


def test_the_user_s_own_modules_are_brought_whole_packages_as_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pack").mkdir()
    for name in ("single.py", "pack/__init__.py", "other.py"):
        (tmp_path / name).touch()
    for name, parts in {
        "single": {"__file__": str(tmp_path / "single.py")},
        "pack": {"__file__": str(tmp_path / "pack/__init__.py"), "__path__": [f"{tmp_path}/pack"]},
        "pack.part": {"__file__": str(tmp_path / "pack/part.py")},
        "renamed": {"__file__": str(tmp_path / "other.py")},
        "gone": {"__file__": str(tmp_path / "gone.py")},
        "nowhere": {},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(parts)
        monkeypatch.setitem(sys.modules, name, module)
    files = BroughtFiles(["python"]).all_files(Path("/r/connection.json"), re.compile(","))
    assert files[0] == Path("/r/connection.json")
    assert [one for one in files if one.is_relative_to(tmp_path)] == [
        tmp_path / "single.py",
        tmp_path / "pack",
    ]


@pytest.mark.parametrize(
    ("system", "name", "words"),
    [
        (HTCondorCommands, "a,b.pyz", "','"),
        (HTCondorCommands, "a$(Process).pyz", "'$('"),
        (HTCondorCommands, "$ENV(HOME).pyz", "'$ENV('"),
        (PBSCommands, "a b.pyz", "' '"),
        (PBSCommands, "a@b.pyz", "'@'"),
    ],
)
def test_a_path_that_the_system_would_read_as_another_is_an_error_that_says_why(
    system: type[BatchCommands], name: str, words: str
) -> None:
    assert system.unbrought is not None
    brought = BroughtFiles(["x"], [Path("/", name)])
    with pytest.raises(ConfigurationError, match=re.escape(f"/{name} has {words} in its path")):
        brought.all_files(Path("/r/connection.json"), system.unbrought)


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (HTCondorScheduler, {}, "shared_files=False needs python="),
        (HTCondorScheduler, {"python": "no.pyz"}, "no.pyz.*there is no such file"),
        (HTCondorScheduler, {"python": "p", "transport": "files"}, "transport='files' has"),
        (HTCondorScheduler, {"container": "a.sif"}, "container= binds the run directory"),
        (SlurmScheduler, {"python": "p"}, "SlurmScheduler cannot have its batch system bring"),
        (PBSScheduler, {}, "shared_files=False needs python="),
        (OARScheduler, {"python": "p"}, "OARScheduler cannot have its batch system bring"),
        (GridEngineScheduler, {"python": "p"}, "GridEngineScheduler cannot have its batch"),
    ],
)
def test_an_argument_that_needs_a_shared_folder_is_refused_by_name(
    kind: type, given: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        kind(shared_files=False, **given)


def test_the_setting_says_it_for_all_and_an_argument_otherwise(
    configure: Callable[..., None],
) -> None:
    configure(shared_files=False)
    assert not HTCondorScheduler(python="/opt/bin/python").shared_files
    assert HTCondorScheduler(shared_files=True).shared_files
    with pytest.raises(ConfigurationError, match="SlurmScheduler cannot"):
        SlurmScheduler()


def test_a_script_for_a_node_without_shared_files_names_no_folder_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/caller/lib")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/caller/so")
    (tmp_path / "gridengine.pyz").touch()
    scheduler = HTCondorScheduler(shared_files=False, python=str(tmp_path / "gridengine.pyz"))
    plan = scheduler.dry_run(connection=Path("/caller/run/connection.json"))
    assert "/caller" not in plan.script
    assert str(tmp_path) not in plan.script
    assert "gridengine.worker connection.json\n" in plan.script
    argv = plan.request["argv"]
    assert isinstance(argv, list)
    [brought] = [word for word in argv if word.startswith("transfer_input_files=")]
    assert brought.startswith(
        f"transfer_input_files=/caller/run/connection.json,{tmp_path}/gridengine.pyz"
    )
