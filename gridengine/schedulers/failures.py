"""How asking a batch system can fail."""

from __future__ import annotations


class BatchSystemError(Exception):
    """A batch system gave no answer, or another than was hoped for; the text holds its own
    words.
    """


class Unreachable(BatchSystemError):
    """It cannot be reached now, or does not answer: nothing is known."""


class Unavailable(BatchSystemError):
    """What speaks to it is not here, or does not work: a command, a library."""


class Refused(BatchSystemError):
    """Its answer is no."""
