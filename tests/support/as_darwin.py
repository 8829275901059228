"""Makes Python on Linux one that lacks what macOS lacks (`make test-darwin`).

`install` puts this module into the environment of the lane, with the names that typeshed, the stubs
of the standard library, has for Linux and not for macOS. There each Python loads it at its start.
These names are gone from then on, the package's room `gridengine.system` is loaded as if on macOS,
and the package finds no file in /proc: psutil alone reads there, since it asks the kernel itself on
macOS. epoll stays: `selectors` has it in the place of kqueue, and trio needs it.

What cannot be played: the kernel's own ways, such as when it gives up a descriptor under way, how
much a Unix socket holds, and the layout of what LOCAL_PEERCRED tells.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import fcntl
import importlib.machinery
import os
import resource
import shutil
import signal
import socket
import struct
import sys
import threading  # noqa: F401 - before `sys.platform` says darwin
import time
import types
from collections.abc import Iterator, Sequence
from importlib.abc import Loader
from pathlib import Path
from typing import Any, SupportsIndex

MODULES = (fcntl, os, resource, signal, socket, time)
ROOM = ("gridengine.system", "gridengine.system.machine", "gridengine.system.polling")
KEPT = {"AF_PACKET", "O_TMPFILE"}
"""What psutil and `tempfile` need on Linux."""
ALSO = {"socket": ["MSG_NOSIGNAL"]}
"""What some Pythons on macOS lack."""
STANDARD = str(Path(os.__file__).parent)
NAMES = "as_darwin_lacks.txt"


# In the lane's processes


def begin() -> None:
    """Make this process one without what macOS lacks. May be called twice, as `site` does."""
    if not hasattr(os, "O_PATH"):
        return
    os.O_SYMLINK = os.O_PATH  # type: ignore[attr-defined]
    shutil._copyxattr = lambda *_, **__: None  # type: ignore[attr-defined]
    _take_sockets_away(socket.SO_PEERCRED)
    for line in (Path(__file__).with_name(NAMES)).read_text().splitlines():
        module, name = line.split(".")
        names = vars(sys.modules[module])
        names.pop(name, None)
        if name in names.get("__all__", ()):
            names["__all__"].remove(name)
    sys.meta_path = _Finders([_Room(), *sys.meta_path])
    sys.addaudithook(_watch)


class _Finders(list[Any]):
    """The finders of modules, of which the first stays the first: pytest has one of its own."""

    def insert(self, index: SupportsIndex, one: Any) -> None:
        super().insert(max(1, int(index)), one)


class _Room:
    """Finds the modules of the room, and has them loaded as if on macOS."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in ROOM:
            return None
        others = (one.find_spec(name, path, target) for one in sys.meta_path if one is not self)
        spec = next(filter(None, others), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self.create_module = loader.create_module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: types.ModuleType) -> None:
        sys.platform, before = "darwin", sys.platform  # type: ignore[misc]
        try:
            self._loader.exec_module(module)
        finally:
            sys.platform = before  # type: ignore[misc]
        if hasattr(module, "peak_bytes"):  # of this kernel, which counts in other units
            vars(module)["peak_bytes"] = lambda usage: usage.ru_maxrss * 1024


def _take_sockets_away(credentials: int) -> None:
    make, get, pair = socket.socket.__init__, socket.socket.getsockopt, socket.socketpair

    def init(
        self: Any, family: int = -1, type: int = -1, proto: int = -1, fileno: Any = None
    ) -> None:
        _refuse(fileno is None and (family, type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET))
        make(self, family, type, proto, fileno)

    def socketpair(family: Any = None, type: int = socket.SOCK_STREAM, proto: int = 0) -> Any:
        _refuse(type == socket.SOCK_SEQPACKET)
        return pair(family, type, proto)

    def getsockopt(self: Any, level: int, option: int, *size: int) -> Any:
        if level == 0 and self.family == socket.AF_UNIX:  # SOL_LOCAL
            said = get(self, socket.SOL_SOCKET, credentials, 12)
            process, user, _ = struct.unpack("3i", said)
            return process if option == 2 else struct.pack("=IIh", 0, user, 0)
        return get(self, level, option, *size)

    def at(name: str) -> Any:
        act = getattr(socket.socket, name)

        def checked(self: Any, address: Any) -> Any:
            _refuse(isinstance(address, str | bytes) and address[:1] in ("\0", b"\0"))
            return act(self, address)

        return checked

    for name, instead in {
        "__init__": init,
        "getsockopt": getsockopt,
        "bind": at("bind"),
        "connect": at("connect"),
    }.items():
        setattr(socket.socket, name, instead)
    socket.socketpair = socketpair


def _refuse(linux: bool) -> None:
    if linux:
        raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Keep the package from /proc, and from prctl(2)."""
    if event in ("open", "os.listdir", "os.scandir"):
        path = arguments[0]
        if isinstance(path, str | bytes) and os.fsdecode(path).startswith("/proc/") and _is_ours():
            raise FileNotFoundError(errno.ENOENT, "there is no /proc on macOS", path)
    elif event == "ctypes.dlsym" and arguments[1] == "prctl":
        raise AttributeError("prctl")


def _is_ours() -> bool:
    """Return whether the package opens a file, perhaps by the standard library."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith((STANDARD, "<frozen")):
        if "site-packages" in frame.f_code.co_filename:
            break
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_globals.get("__name__", "").startswith("gridengine.")


# In `make test-darwin`


def install(folder: Path) -> None:
    """Have each Python whose `site-packages` is this folder load this module at its start."""
    lacking = [f"{name}.{one}" for name in _names() for one in sorted(_lacking(name))]
    (folder / NAMES).write_text("\n".join(lacking))
    shutil.copy(__file__, folder / "as_darwin.py")
    (folder / "as_darwin.pth").write_text("import as_darwin; as_darwin.begin()\n")


def _names() -> list[str]:
    return [module.__name__ for module in MODULES]


def _lacking(module: str) -> set[str]:
    import mypy

    stubs = Path(mypy.__file__).parent / "typeshed" / "stdlib"
    paths = [stubs / f"{module}.pyi", stubs / module / "__init__.pyi"]
    tree = ast.parse(next(path for path in paths if path.exists()).read_text())
    on_linux, on_macos = (set(_defined(tree.body, one)) for one in ("linux", "darwin"))
    return (on_linux - on_macos - KEPT).union(ALSO.get(module, ()))


def _defined(body: Sequence[ast.stmt], platform: str) -> Iterator[str]:
    """Yield the names that these statements define on a platform."""
    here = types.SimpleNamespace(platform=platform, version_info=sys.version_info)
    for one in body:
        match one:
            case ast.If():
                with contextlib.suppress(NameError):
                    holds = eval(compile(ast.Expression(one.test), "stub", "eval"), {"sys": here})
                    yield from _defined(one.body if holds else one.orelse, platform)
            case ast.FunctionDef() | ast.ClassDef():
                yield one.name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case ast.ImportFrom():
                yield from (alias.asname or alias.name for alias in one.names)


if __name__ == "__main__":
    install(Path(sys.argv[1]))
