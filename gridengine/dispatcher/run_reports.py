"""The reports of runs that have ended: one file for each, in a folder of the user."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gridengine.display import log
from gridengine.errors import ConfigurationError
from gridengine.settings.locations import home_folder
from gridengine.wire.connection_file import make_private_folder, replace_private

SUFFIX = ".json"


def reports_folder() -> Path | None:
    """Return the folder of the reports; None for a user without a home."""
    given, home = os.environ.get("XDG_STATE_HOME", ""), home_folder(os.environ)
    if given.startswith("/"):  # the XDG Base Directory Specification ignores relative paths
        return Path(given, "gridengine", "reports")
    return home / ".local" / "state" / "gridengine" / "reports" if home is not None else None


def report_files() -> list[Path]:
    """Return the files of all reports, the latest run first."""
    folder = reports_folder()
    with contextlib.suppress(OSError):
        if folder is not None:
            return sorted(folder.glob(f"*{SUFFIX}"), reverse=True)
    return []


def report_file(run_id: str) -> Path | None:
    """Return the file of the report of a run; None for a user without a home."""
    folder = reports_folder()
    return None if folder is None else folder / f"{run_id}{SUFFIX}"


def write_report(run_id: str, content: bytes, most: int) -> None:
    """Write a report, and delete the oldest ones so that at most `most` remain. Failures are only
    logged.
    """
    file = report_file(run_id)
    if file is None or not most:
        return
    try:
        if not file.parent.exists():
            make_private_folder(file.parent)
        replace_private(file, content)
        for path in report_files()[most:]:
            path.unlink(missing_ok=True)
    except (OSError, ConfigurationError) as error:
        log().debug("no report of this run is kept: %s", error)
