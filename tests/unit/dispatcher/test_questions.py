"""What threads wait with for answers of a dispatcher."""

from __future__ import annotations

import pytest

from gridengine.dispatcher.questions import Question


def test_an_answer_ends_the_waiting_and_an_error_is_raised() -> None:
    good, bad, never = Question(), Question(), Question()
    good.answer()
    good.wait()
    bad.answer(KeyError("no"))
    with pytest.raises(KeyError):
        bad.wait()
    with pytest.raises(TimeoutError, match="no answer within 0 s"):
        never.wait(0)
