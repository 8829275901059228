"""A run with a name, as those see it who hand calls in."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path

import pytest

from gridengine.client import named_run
from gridengine.client.named_run import OpenRun
from gridengine.client.options import Resume, RunOptions
from gridengine.dispatcher.core.tasks import Function
from gridengine.journal import call_keys
from gridengine.serialize import byte_code
from gridengine.serialize.users_modules import own_modules


def test_a_function_whose_module_was_edited_and_loaded_again_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "kept_run_helpers.py"
    file.write_text("def f(x): return x\ndef g(x): return x\n")
    module = importlib.import_module("kept_run_helpers")
    f, g = (Function(name, [name], (), b"", "") for name in (b"f", b"g"))
    run = OpenRun(RunOptions("run", tmp_path / "run.sqlite"), None)
    try:
        own_modules().check()
        before = run.function(module.f, f), run.function(module.g, g)
        assert before == (run.function(module.f, f), run.function(module.g, g))
        file.write_text("def f(x): return x * 100\ndef g(x): return x\n")
        importlib.reload(module)
        own_modules().check()
        after = run.function(module.f, f), run.function(module.g, g)
        assert after[0].identity != before[0].identity
        assert after[1] is before[1]
    finally:
        run.close()
        del sys.modules["kept_run_helpers"]


def test_the_exit_of_the_interpreter_waits_for_a_thread_that_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over, released = threading.Event(), threading.Event(), []

    def release(file: object) -> None:
        begun.set()
        assert over.wait(60)
        released.append(file)

    monkeypatch.setattr(named_run, "release", release)
    run = OpenRun(RunOptions("run", tmp_path / "run.sqlite"), None)
    closing = threading.Thread(target=run.close)
    closing.start()
    assert begun.wait(60)
    assert run._finalizer.atexit
    assert run._finalizer.alive
    at_exit = threading.Thread(target=run._use.end)
    at_exit.start()
    assert at_exit.is_alive()
    over.set()
    at_exit.join(60)
    closing.join(60)
    assert len(released) == 1
    assert not run._finalizer.alive
    monkeypatch.undo()
    named_run.release(run._file)


@pytest.mark.parametrize("resume", [True, "anyway", False])
def test_who_goes_on_with_another_python_is_told_that_the_calls_are_made_anew(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    resume: Resume,
) -> None:
    def use(python: str) -> list[str]:
        monkeypatch.setattr(call_keys, "PYTHON", python)
        caplog.clear()
        run = OpenRun(RunOptions("run", tmp_path / "run.sqlite", resume=resume), None)
        run.function(use, Function(b"use", [b"use"], (), b"", "use"))
        run.close()
        return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]

    assert use("2.7") == use("2.7") == []
    told = use(byte_code.PYTHON)
    if resume is True:
        [text] = told
        assert f"were made by Python 2.7, and this is Python {byte_code.PYTHON}" in text
    else:
        assert told == []
