"""Which clients in other processes are served."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine._version import __version__
from gridengine.dispatcher.run_directory import python_version
from gridengine.wire.messages import OLDEST, VERSION, Refuse
from tests.support.played_listener import A, Played, hello


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"protocol": VERSION + 2, "oldest": VERSION + 1, "version": "9.9"}, "9.9"),
        ({"protocol": OLDEST - 1, "oldest": 1, "version": "0.0.1"}, "0.0.1"),
        ({"python": "3.99"}, "3.99"),
    ],
)
def test_another_version_is_refused_with_both_in_the_text(
    played: Played, told: dict[str, Any], words: str
) -> None:
    assert played.say(A, hello(**told)) == []
    [refusal] = played.told(A)
    assert isinstance(refusal, Refuse)
    assert refusal.mismatch
    assert words in refusal.reason
    assert (__version__ if "version" in told else python_version()) in refusal.reason
    assert played.server.forgotten == [A]


@pytest.mark.parametrize("told", [{"protocol": VERSION + 3, "oldest": VERSION}, {"python": ""}])
def test_a_newer_client_that_speaks_our_protocol_or_one_of_another_language_is_taken(
    played: Played, told: dict[str, Any]
) -> None:
    played.join(A, **told)
