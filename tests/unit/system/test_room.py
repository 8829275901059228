"""Only the room knows which system this is. What the others must not name is checked by mypy, for
macOS too (`make check`); here is what types do not tell.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import gridengine

PACKAGE = Path(gridengine.__file__).parent


def strings_and_names(file: Path) -> Iterator[str]:
    """Yield what a module opens or asks by text, and the attributes that it uses."""
    for one in ast.walk(ast.parse(file.read_text())):
        if isinstance(one, ast.Constant) and isinstance(one.value, str | bytes):
            yield one.value if isinstance(one.value, str) else one.value.decode(errors="replace")
        elif isinstance(one, ast.Attribute):
            yield ast.unparse(one)


def test_only_the_room_reads_proc_and_asks_which_system_this_is() -> None:
    others = [file for file in PACKAGE.rglob("*.py") if file.parent != PACKAGE / "system"]
    assert len(others) > 300
    found = [
        f"{file.relative_to(PACKAGE)}: {text}"
        for file in others
        for text in strings_and_names(file)
        if text.startswith(("/proc", "/dev/fd", "/dev/shm"))
        or text in ("sys.platform", "socket.SOCK_SEQPACKET", "socket.MSG_NOSIGNAL", "prctl")
    ]
    assert found == []
