"""The names, parameters and exit statuses that users rely on change only on purpose."""

from __future__ import annotations

from tests.support.public_interface import FILE, described


def test_the_public_interface_is_as_the_file_says() -> None:
    """After a change on purpose: `.venv/bin/python -m tests.support.public_interface`, and a line
    in `CHANGELOG.md`.
    """
    assert described().splitlines() == FILE.read_text().splitlines()
