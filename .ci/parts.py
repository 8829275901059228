"""Print which tests of `make test-all` the changes since its last whole run can break.

`.ci/tested` names the commit at which `make test-all` last passed as a whole. Each file that has
changed since then belongs to a row of `PARTS`, and the row names the folders of tests that the file
can break. The answer is one line: `all` where the rule is in doubt (no such commit here, or a file
without a row), folders of tests (and `newest-python`), or nothing.

The row of a room names the tests that play that room's own promises on real workers. Whatever else
the room's change could break is held by `make test`, which runs whole for each change.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTED = ROOT / ".ci" / "tested"

INTEGRATION = "tests/integration"
NEWEST_PYTHON = "newest-python"
"""What depends on the version of Python, on the newest here."""
CALLS = ["executors", "jobs", "map", "matrix", "nested", "runs", "differences"]
SYSTEMS = ["clusters", "grid_engine", "slurm"]
HOSTS = "tests/hosts"
PARTS: dict[str, list[str]] = {
    "gridengine/api/": [*CALLS, "command_line", "dispatcher"],
    "gridengine/call_context/": [*CALLS, "worker", NEWEST_PYTHON],
    "gridengine/calls/": [*CALLS, "dispatcher", "faults"],
    "gridengine/cli/": ["command_line", "dispatcher", "watching", *SYSTEMS],
    "gridengine/client/": [*CALLS, "dispatcher", "faults", NEWEST_PYTHON],
    "gridengine/joblib_backend.py": ["executors", "nested"],
    "gridengine/dispatcher/worker_links.py": ["dispatcher", "faults", "wire"],
    "gridengine/journal/": ["dispatcher", "runs"],
    "gridengine/output/": ["dispatcher", "jobs", "worker"],
    "gridengine/page/": ["watching"],
    "gridengine/pytest_plugin.py": ["executors"],
    "gridengine/requests.py": [*CALLS, "dispatcher", "faults"],
    "gridengine/resources/base.py": ["map", "nested"],  # a system's words are of the kinds
    "gridengine/resources/": ["map", "nested", *SYSTEMS],
    "gridengine/schedulers/": [*SYSTEMS, HOSTS, "faults", "worker"],
    "gridengine/serialize/": [*CALLS, "worker", NEWEST_PYTHON],
    "gridengine/settings/": ["command_line", "dispatcher", "map", "clusters"],
    "gridengine/status/": ["watching"],
    "gridengine/watching/": ["watching", "clusters"],
    "gridengine/system/": [*CALLS, "dispatcher", "faults", "wire", "worker"],
    "gridengine/wire/": ["dispatcher", "security", "wire"],
    "gridengine/worker/": [*CALLS, "faults", "security", "worker", NEWEST_PYTHON],
    "schedulers/": [*SYSTEMS, HOSTS],
    "examples/": ["command_line", "dispatcher", "slurm"],
    "docs/": ["command_line"],
    "README.md": ["command_line"],
}
"""Which folders of `tests/integration`, and whether `tests/hosts`, a changed file can break, by how
its path begins.
"""
HARMLESS = (
    *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "SECURITY.md", ".ci/"),
    *(".gitignore", ".github/", "benchmarks/"),
    *("findings/", "tests/chaos/", "tests/contract/", "tests/pools/", "tests/power/"),
    "tests/property/",
    *("tests/slow.txt", "tests/unit/", "tools/coverage", "tools/slow_tests.py", "tools/steady"),
)
"""What no test of `make test-all` depends on, or what `.ci/run` runs anyway."""


def main() -> None:
    changed = changed_files()
    print("all" if changed is None else " ".join(parts_of(changed)))


def changed_files() -> list[str] | None:
    """Return the files that differ from the commit tested whole; None when it is not known."""
    if not TESTED.exists():
        return None
    commit = TESTED.read_text().split()[0]
    command = ["git", "diff", "--name-only", "--no-renames", commit, "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else None


def parts_of(changed: list[str]) -> list[str]:
    """Return the tests that these files can break; `["all"]` when one has no row."""
    parts: set[str] = set()
    for file in changed:
        found = own_part(file) or next(
            (parts for start, parts in PARTS.items() if file.startswith(start)), None
        )
        if found is None and not file.startswith(HARMLESS):
            return ["all"]
        parts.update(found or [])
    newest_python = parts & {NEWEST_PYTHON}
    folders = sorted(folder_of(part) for part in parts - newest_python)
    return [*(folder for folder in folders if (ROOT / folder).exists()), *newest_python]


def folder_of(part: str) -> str:
    """Return the folder of the tests that a row names."""
    return part if part == HOSTS else f"{INTEGRATION}/{part}"


def own_part(file: str) -> list[str]:
    """Return the folder of a changed test of integration or hosts; nothing for another file."""
    if file.startswith(f"{HOSTS}/"):
        return [HOSTS]
    inside = file.removeprefix(f"{INTEGRATION}/")
    if inside == file or inside == "conftest.py":
        return []
    return [inside.partition("/")[0]]


if __name__ == "__main__":
    main()
