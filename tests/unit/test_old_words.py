"""What things were called once is an error that says what they are called now."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import gridengine
from gridengine import schedulers


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda: gridengine.ProcessScheduler(max_threads=2), "say max_workers"),
        (lambda: gridengine.ProcessScheduler(n_jobs=2), "say max_workers"),
        (lambda: gridengine.map(abs, [1], gridengine.ProcessScheduler), "scheduler="),
        (lambda: gridengine.map(abs, [1], gridengine.InlineScheduler()), "scheduler="),
        (lambda: schedulers.TimeoutError, "it is gridengine.TimeoutError"),
        (lambda: gridengine.Token("licence").token, "it is name"),
    ],
)
def test_an_old_word_is_an_error_that_says_the_new_one(
    use: Callable[[], object], words: str
) -> None:
    with pytest.raises((TypeError, AttributeError), match=words):
        use()


def test_other_keywords_of_a_process_scheduler_are_unknown() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'threads'$"):
        gridengine.ProcessScheduler(threads=2)  # type: ignore[arg-type]
