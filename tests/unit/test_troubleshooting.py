"""Each error has its page."""

from __future__ import annotations

import re
from pathlib import Path

from gridengine import errors

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"


def titles() -> list[str]:
    return re.findall(r"^## (\w+)$", PAGE.read_text(), flags=re.MULTILINE)


def tree(kind: type[Exception]) -> list[str]:
    return [
        name
        for child in kind.__subclasses__()
        if child.__module__ == errors.__name__
        for name in (child.__name__, *tree(child))
    ]


def test_each_error_has_its_title() -> None:
    assert errors.Cancelled  # which is made at its first use
    assert sorted(titles()) == sorted(tree(errors.GridEngineError))


def test_each_title_says_what_it_means() -> None:
    sections = re.split(r"^## \w+$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert all("**It means**" in section for section in sections)
