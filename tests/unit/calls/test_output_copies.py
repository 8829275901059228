"""What calls in this process write is copied while they run, and still goes where it went."""

from __future__ import annotations

import sys

import pytest

from gridengine.calls.inline import copied


def test_written_output_is_copied_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with copied(True) as (out, err):
        with copied(True) as (inner, _):
            print("both")
        print("outer")
        print("error", file=sys.stderr)
    assert (sys.stdout, sys.stderr) == before
    assert (out.getvalue(), err.getvalue()) == ("both\nouter\n", "error\n")
    assert inner.getvalue() == "both\n"
    assert capsys.readouterr() == ("both\nouter\n", "error\n")


def test_nothing_is_copied_that_nobody_wants() -> None:
    before = sys.stdout
    with copied(False) as (out, _):
        assert sys.stdout is before
    assert out.getvalue() == ""
