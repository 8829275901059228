"""Tasks and what is told of them."""

from __future__ import annotations

from gridengine.requests import Attempt


def test_an_attempt_is_told_with_its_place_and_time() -> None:
    attempt = Attempt("node7", "4711", 100.0, 102.25, "it was killed by SIGSEGV")
    assert attempt.seconds == 2.25
    assert str(attempt) == "on node7 (cluster job 4711), after 2.2 s: it was killed by SIGSEGV"
    assert str(Attempt("laptop", "", 5.0, 5.0, "x")) == "on laptop, after 0.0 s: x"
