"""What names the runs with a name that are in the run directory."""

from __future__ import annotations

import os
from pathlib import Path

from gridengine.errors import ConfigurationError
from gridengine.journal import stored_runs
from gridengine.journal.stored_runs import RunSummary
from gridengine.watching.names import Known, Word, only


def known_runs() -> list[Known[Path]]:
    """Return the runs, each with its file: by name, by path, and by who began it."""
    return [_known(stored_runs.summary(path)) for path in stored_runs.paths()]


def run_begun_by(word: Word) -> str:
    """Return the name of the run that a word names by its script or process: of several the one
    that has calls without a result. Empty when there is none.

    Raises:
        SeveralMeant: several have such calls, or none of several has.
    """
    try:
        runs = [stored_runs.summary(path) for path in stored_runs.paths()]
    except (OSError, ConfigurationError):  # there is no run directory
        return ""
    left = [_known(one) for one in runs if one.left]
    found = only(word, left, "run") or only(word, [*map(_known, runs)], "run")
    return "" if found is None or found.title == word.text else found.title


def _known(one: RunSummary) -> Known[Path]:
    script = Path(one.script)
    words = {one.script, script.name, script.stem, str(one.pid)} - {"", "0"}
    about = f"begun by {one.script} on {one.host}"
    path = Path(one.path)
    return Known(one.name, path, about, other=words, paths=(os.path.realpath(path),))
