"""Large buffers in memory that several processes map, so that a machine holds each once.

A block is memory without a name (`memfd_create(2)`). The same user's processes can map it by its
owner's `/proc/PID/fd` for as long as the owner has it open; what is mapped then stays, whatever
becomes of the owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import logging
import math
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridengine.serialize.payload import Buffer, Payload, Place
from gridengine.serialize.references import NOTHING, Awaited

if TYPE_CHECKING:
    import hashlib

log = logging.getLogger("gridengine")

LARGE = 1 << 20
"""From this size in bytes a buffer goes into a block; below it, sending it to each process costs
less.
"""
MOST_BLOCKS = 200
"""With so many blocks of results, each of which takes a descriptor, the next are as other buffers:
whoever needs them is sent them.
"""
KEPT_BYTES = 16_000_000
"""So much of functions that no call uses is kept; a larger one is let go at once, so that there is
little use in knowing it again.
"""
_ALIGNMENT = 64
"""Where buffers begin in a block, in bytes: what vector instructions like."""
_MAP_FIXED = 0x10
"""On Linux, whatever the processor but on some that Python is not built for."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
"""What a block has that comes from a process which may do anything: who maps it may rely on it."""


class Block(mmap.mmap):
    """Memory for other processes to map; it cannot be written to any more. It goes when nothing
    refers to it or to a view of it.
    """

    fd = -1
    """The descriptor that this was mapped from, closed with it."""

    def own(self, fd: int) -> None:
        """Have this descriptor of it as long as it is there."""
        self.fd = fd
        self._close_fd = weakref.finalize(self, os.close, fd)

    def disown(self) -> None:
        """Close the descriptor: from here on nobody else can open it."""
        if self.fd >= 0:
            self.fd = -1
            self._close_fd()

    def move_to_file(self, folder: Path) -> None:
        """Have what is in it lie in a file there, which has no name and goes with it, rather than
        in memory. Views of it, and the path, stay good.

        Raises:
            OSError: the file cannot be made, or does not take it all.
        """
        import tempfile  # here, since it is hardly ever needed

        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, len(self))
            _write(file.fileno(), memoryview(self), 0)
            os.fsync(file.fileno())  # some file systems say only now that they are full
            _map_over(self, file.fileno())
            if self.fd >= 0:
                os.dup2(file.fileno(), self.fd, inheritable=False)

    @property
    def path(self) -> str:
        """Where processes of this machine and user can open it."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"


class StoredPayload(list[Buffer]):
    """A payload whose large buffers lie in a block.

    block: which. places: of each such buffer its index in the payload, its offset in the block and
        its size, in their order.
    digest: of what is in the block; empty when there is too much of it for that.
    needs: see `shared_objects.needs_of`.
    """

    needs: tuple[Any, ...] = ()
    awaits: Awaited = NOTHING

    def __init__(
        self, payload: Payload, block: Block, places: Sequence[Place], digest: bytes
    ) -> None:
        super().__init__(payload)
        self.block = block
        self.places = list(places)
        self.digest = digest
        view = memoryview(block)
        for index, offset, size in places:
            self[index] = view[offset : offset + size]

    def fetch(self) -> list[Buffer]:
        """Return the payload with its large buffers mapped anew, to be written to."""
        return _put_together([(_mapped(self.block.fd), self.places)], self.others())

    def others(self) -> list[Buffer]:
        """Return the buffers that are not in the block."""
        stored = {index for index, _, _ in self.places}
        return [buffer for index, buffer in enumerate(self) if index not in stored]


class BlockWriter:
    """A payload on its way into a block, and its digest, unless it is of more than `most_digested`
    bytes.
    """

    def __init__(self, *, most_digested: float = math.inf) -> None:
        self._most_digested = most_digested
        self._fd = -1
        self._size = 0
        self._places: list[Place] = []
        import hashlib

        # Where buffers are large their digest takes most of the time, and SHA-256 is what
        # processors have instructions for.
        self._digest: hashlib._Hash | None = hashlib.sha256()

    def put(self, index: int, buffer: Buffer) -> bool:
        """Copy what is to be number `index` of the payload into the block; return whether that was
        possible: otherwise it travels as small buffers do.
        """
        view = memoryview(buffer).cast("B")
        try:
            if self._digest is None or self._size + view.nbytes > self._most_digested:
                self._copy(view)
                self._digest = None
            else:
                self._digest = self._copy_and_digest(view, self._digest.copy())
        except OSError:  # no descriptor is left, or files may not be so large
            return False
        self._places.append((index, self._size, view.nbytes))
        self._size += -(-view.nbytes // _ALIGNMENT) * _ALIGNMENT
        return True

    def _copy_and_digest(self, view: memoryview, digest: hashlib._Hash) -> hashlib._Hash:
        # Both let go of the interpreter's lock meanwhile: on two processors it takes half the time.
        digesting = threading.Thread(target=digest.update, args=(view,))
        try:
            digesting.start()
        except RuntimeError:  # no thread is to be had
            digest.update(view)
        try:
            self._copy(view)
        finally:
            if digesting.ident is not None:
                digesting.join()
        return digest

    def _copy(self, view: memoryview) -> None:
        if self._fd < 0:
            _check_openness()
            self._fd = os.memfd_create("gridengine-block")
        _write(self._fd, view, self._size)

    def finish(self, payload: list[Buffer]) -> list[Buffer]:
        """Return the payload with views of the block in it. Nothing can be put there any more.

        Raises:
            OSError: no address space is left.
        """
        if not self._places:
            return payload
        block = Block(self._fd, 0, prot=mmap.PROT_READ)
        block.own(self._fd)
        self._fd = -1
        return StoredPayload(
            payload, block, self._places, b"" if self._digest is None else self._digest.digest()
        )

    def close(self) -> None:
        """Let go of what was not finished. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def store(payload: Payload, *, whole: bool = False) -> Payload:
    """Return a payload whose large buffers are in a block: the same one when there are none, they
    are already, or no block is to be had.

    whole: all of it goes there, if together it is large, and nothing of it changes any more.
    """
    sizes = [memoryview(buffer).nbytes for buffer in payload]
    if whole:
        chosen = list(range(len(sizes))) if sum(sizes) >= LARGE else []
    else:
        chosen = [index for index, size in enumerate(sizes) if index and size >= LARGE]
    if isinstance(payload, StoredPayload) or not chosen:
        return payload
    stored: list[Buffer] = list(payload)
    with contextlib.closing(BlockWriter(most_digested=0)) as storing:
        for index in chosen:
            if storing.put(index, payload[index]):
                stored[index] = b""
        try:
            return storing.finish(stored)
        except OSError:  # no descriptor is left, or no address space
            return payload


def fetch(
    blocks: Mapping[str, Sequence[Place]], others: Payload, *, writable: bool = True
) -> list[Buffer]:
    """Return the payload whose large buffers are at these places of the blocks with these paths.

    They are mapped: their pages are shared with all who have them. They may be written to, unless
    they are to be not `writable`; what is written is seen here alone (copy on write).

    Raises:
        OSError: one is not there.
    """
    mapped = [(_opened(path, writable=writable), places) for path, places in blocks.items()]
    return _put_together(mapped, others)


def _opened(path: str, *, writable: bool) -> memoryview:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return _mapped(fd) if writable else memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
    finally:
        os.close(fd)


def new_block(buffer: Buffer) -> int:
    """Return a descriptor of memory with a copy of this, which nobody can change any more.

    Raises:
        OSError: no descriptor is left, or files may not be so large.
    """
    fd = os.memfd_create("gridengine-block", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _write(fd, memoryview(buffer).cast("B"), 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def adopt(fd: int, size: int) -> memoryview:
    """Return what `new_block` has made in another process, to be written to: what is written is
    seen here alone. It is a view of a `Block`, which has the descriptor from here on.

    Raises:
        OSError: it cannot be mapped.
        ValueError: it is none, or of another size.
    """
    if os.fstat(fd).st_size != size or not _is_sealed(fd):
        raise ValueError("this is no block, or of another size")
    block = _private(fd, size)
    block.own(fd)
    return memoryview(block)


def in_own_block(buffer: Buffer) -> Buffer:
    """Return a copy of a buffer in a block of this process alone, which may be moved to a file; a
    small one as it is.

    Raises:
        OSError: no address space is left.
    """
    if len(buffer) < LARGE:
        return buffer
    block = Block(-1, len(buffer), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block[:] = buffer
    return memoryview(block)


def in_shared_block(buffer: Buffer) -> Buffer:
    """Return a copy of a buffer in a block that others can open, which may be moved to a file; a
    small one, or one in a block, as it is.

    Raises:
        OSError: no descriptor, or address space, is left.
    """
    if len(buffer) < LARGE or block_of(buffer) is not None:
        return buffer
    return adopt(new_block(buffer), len(buffer))


def block_of(buffer: Buffer) -> Block | None:
    """Return the block that a buffer is all of, if others can open that."""
    block = buffer.obj if type(buffer) is memoryview else None
    return block if type(block) is Block and block.fd >= 0 and len(buffer) == len(block) else None


def writable(buffer: Buffer) -> Buffer:
    """Return what is in a buffer so that it can be written to, and that is seen here alone."""
    view = memoryview(buffer)
    if not view.readonly:
        return buffer
    block = block_of(buffer)
    return bytearray(view) if block is None else memoryview(_private(block.fd, len(block)))


@contextlib.contextmanager
def sealed_block(buffer: Buffer) -> Iterator[int]:
    """Yield a descriptor of a sealed block with a buffer, for as long as the context lasts: the
    block that the buffer is, or else a copy.

    Raises:
        OSError: see `new_block`.
    """
    block = block_of(buffer)
    if block is not None and _is_sealed(block.fd):
        yield block.fd
        return
    fd = new_block(buffer)
    try:
        yield fd
    finally:
        os.close(fd)


def _is_sealed(fd: int) -> bool:
    """Return whether nobody can change a block. A block that was moved to a file has no seals."""
    with contextlib.suppress(OSError):
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    return False


class KeptBlocks:
    """Blocks that others may need, as long as they live. Their descriptors are not closed, but for
    those of very many: a process may not have more.

    Args:
        most_bytes: of so many bytes at most they are in memory.
        folder: where the oldest of them go, as files, when there are more.
    """

    def __init__(self, most_bytes: float = math.inf, folder: Path = Path()) -> None:
        self.most_bytes = most_bytes
        self.folder = folder
        self._blocks: dict[int, weakref.ref[Block]] = {}
        self._open: set[int] = set()
        self._in_memory: dict[int, int] = {}
        """The sizes of those in memory, oldest first; together they are `_bytes`."""
        self._bytes = 0
        self._gone: deque[int] = deque()
        """Those that went, in whatever thread, since the last time."""
        self._numbers = itertools.count()
        self._has_warned = False

    def keep(self, buffers: Iterable[Buffer]) -> None:
        """Keep the blocks among these.

        Raises:
            OSError: there is no room for them, neither in memory nor in files.
        """
        while self._gone:
            number = self._gone.popleft()
            del self._blocks[number]
            self._open.discard(number)
            self._bytes -= self._in_memory.pop(number, 0)
        for buffer in buffers:
            block = buffer.obj if type(buffer) is memoryview else None
            if type(block) is Block:
                self._add(block)
        while self._bytes > self.most_bytes:
            number = next(iter(self._in_memory))
            oldest = self._blocks[number]()
            if oldest is not None:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                oldest.move_to_file(self.folder)
            self._bytes -= self._in_memory.pop(number)

    def _add(self, block: Block) -> None:
        number, gone = next(self._numbers), self._gone
        if len(self._open) < MOST_BLOCKS:
            self._open.add(number)
        else:
            block.disown()
        self._blocks[number] = weakref.ref(block, lambda _: gone.append(number))
        self._in_memory[number] = len(block)
        self._bytes += len(block)

    def take_in(self, buffers: Payload, copy: Callable[[Buffer], Buffer]) -> Payload:
        """Keep what has come as it is sent, in blocks that `copy` makes; return it. It is here:
        where there is no room for it otherwise it stays in memory, and a warning says so, once.
        """
        try:
            taken = list(map(copy, buffers))
            self.keep(one for one, sent in zip(taken, buffers, strict=True) if one is not sent)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "results that calls need fill %.0f bytes of memory of this process, and %s "
                    "takes no more (%s): more of them stay in memory",
                    self.most_bytes,
                    self.folder,
                    error.strerror,
                )
            return buffers
        return taken


def disown(buffers: Iterable[Buffer]) -> None:
    """Close the descriptors of the blocks among these, which nobody else is to open."""
    for buffer in buffers:
        if type(buffer) is memoryview and type(buffer.obj) is Block:
            buffer.obj.disown()


def _private(fd: int, size: int) -> Block:
    """Return what is in a file, mapped copy on write. `mmap.mmap` would keep a descriptor of it
    open, and whoever holds a thousand results has no more.
    """
    block = Block(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _map_over(block, fd)
    return block


def _map_over(block: Block, fd: int) -> None:
    """Put what is in a file in the place of what was mapped."""
    import ctypes  # here, since few need it

    place = ctypes.addressof(ctypes.c_char.from_buffer(block))
    flags, protection = mmap.MAP_PRIVATE | _MAP_FIXED, mmap.PROT_READ | mmap.PROT_WRITE
    if _mmap()(place, len(block), protection, flags, fd, 0) != place:
        why = ctypes.get_errno()
        raise OSError(why, os.strerror(why))


@functools.cache
def _mmap() -> Any:
    """Return mmap(2)."""
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype, word, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    call.argtypes = word, word, number, number, number, ctypes.c_long
    return call


def _write(fd: int, view: memoryview, offset: int) -> None:
    done = 0
    while done < view.nbytes:
        done += os.pwrite(fd, view[done:], offset + done)


def _mapped(fd: int) -> memoryview:
    return memoryview(
        mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    )


def _put_together(
    mapped: Iterable[tuple[memoryview, Sequence[Place]]], others: Payload
) -> list[Buffer]:
    """Return a payload put together from blocks and what is not in them."""
    payload = list(others)
    for index, buffer in sorted(
        (index, view[offset : offset + size])
        for view, places in mapped
        for index, offset, size in places
    ):
        payload.insert(index, buffer)
    return payload


def _check_openness() -> None:
    """Check that other processes of this user may look into our descriptors: not those of a program
    with privileges of its own, for one.

    Raises:
        OSError: they may not (proc(5): the folder then belongs to root).
    """
    if Path(f"/proc/{os.getpid()}/fd").stat().st_uid != os.geteuid():
        raise PermissionError("other processes may not open this one's descriptors")
