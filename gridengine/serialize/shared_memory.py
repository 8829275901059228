"""Large buffers in memory that several processes map, so that a machine holds each once.

A block is memory without a name, on macOS a file. Processes of the same user can map it by its
path for as long as its owner has it open (`system.path_of`). Their mappings then stay, even after
the owner has ended.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import math
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gridengine.serialize.payload import Buffer, Payload, Place
from gridengine.serialize.references import NOTHING, Awaited
from gridengine.system import (
    MEMORY_IS_FILES,
    is_sealed,
    openable_memory,
    path_of,
    release,
    sealed_memory,
)

if TYPE_CHECKING:
    import hashlib
    from pathlib import Path


LARGE = 1 << 20
"""From this size in bytes a buffer goes into a block. Sending a smaller one to each costs less."""
MOST_BLOCKS = 200
"""The most blocks of results, each of which takes a descriptor. Further results are sent to the
processes that need them, like other buffers.
"""
IDLE_BYTES = 16_000_000
"""Unused functions are kept up to this many bytes. A larger function is released at once, so
there is little use in recognizing it later.
"""
_COMPARED_BYTES = 64 * 1024
"""This many bytes are compared at a time: they stay in the processor's cache."""
_ALIGNMENT = 64
"""Buffers begin at multiples of this in a block, in bytes, as vector instructions prefer."""
_MAP_FIXED = 0x10
"""The value on Linux and macOS, on all processors that Python is built for."""


class Block(mmap.mmap):
    """Memory that other processes can map, and that nobody writes to any more. It is freed when
    nothing refers to it or to a view of it.
    """

    fd = -1
    """The descriptor that the block was mapped from; closed with the block."""
    name = ""
    """See `system.openable_memory`."""

    def own(self, fd: int, name: str = "") -> None:
        """Own this descriptor of the block: it is closed with the block."""
        self.fd, self.name = fd, name
        self._close_fd = weakref.finalize(self, release, fd, name, os.getpid())

    def disown(self) -> None:
        """Close the descriptor: from here on no other process can open the block."""
        if self.fd >= 0:
            self.fd = -1
            self._close_fd()

    def move_to_file(self, folder: Path) -> None:
        """Move the content from memory to a file in that folder. The file has no name, and is freed
        with the block. Views of the block, and its path, stay valid.

        Raises:
            OSError: the file cannot be made, or there is no room for all of it.
        """
        if MEMORY_IS_FILES and self.fd >= 0:
            return
        import tempfile  # here: it is hardly ever needed

        with tempfile.TemporaryFile(dir=folder) as file:
            _write(file.fileno(), memoryview(self), 0)
            os.fsync(file.fileno())  # some file systems report only now that they are full
            _map_over(self, file.fileno())
            if self.fd >= 0:
                os.dup2(file.fileno(), self.fd, inheritable=False)

    @property
    def path(self) -> str:
        """The path by which processes of this machine and user can open the block; empty if they
        cannot.
        """
        return path_of(self.fd, self.name)


class StoredPayload(list[Buffer]):
    """A payload whose large buffers lie in a block.

    places: the place of each such buffer, in their order.
    digest: the digest of the block's content; empty if the content is too large for that.
    needs: see `shared_objects.needs_of`.
    """

    needs: tuple[Any, ...] = ()
    awaits: Awaited = NOTHING
    copies_generator = False

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
        """Return the payload with its large buffers mapped anew, so that they may be written to."""
        return _put_together([(_mapped(self.block.fd), self.places)], self.others())

    def others(self) -> list[Buffer]:
        """Return the buffers that are not in the block."""
        stored = {index for index, _, _ in self.places}
        return [buffer for index, buffer in enumerate(self) if index not in stored]


def is_equal(copy: Buffer, view: memoryview) -> bool:
    """Return whether the bytes are equal. `bytes.startswith` compares by the C library's `memcmp`;
    `memoryview` does not.
    """
    return all(
        bytes(copy[start : start + _COMPARED_BYTES]).startswith(
            view[start : start + _COMPARED_BYTES]
        )
        for start in range(0, view.nbytes, _COMPARED_BYTES)
    )


class BlockWriter:
    """Writes the large buffers of a payload into a block, and digests them, unless they have more
    than `most_digested` bytes together.

    before: an earlier payload of the same object. As long as the buffers are the same, they are
        only compared with its block, which becomes the block of the new payload too.
    """

    def __init__(self, *, most_digested: float = math.inf, before: Payload = ()) -> None:
        self._before = before if isinstance(before, StoredPayload) else None
        self._most_digested = most_digested
        self._fd, self._name = -1, ""
        self._size = 0
        self._places: list[Place] = []
        self._digest: hashlib._Hash | None = None
        self._is_digested = True

    def put(self, index: int, buffer: Buffer) -> bool:
        """Copy the buffer that gets this index in the payload into the block. Return whether that
        was possible: if not, the buffer travels like a small one.
        """
        view = memoryview(buffer).cast("B")
        if self._before is not None:
            place = index, self._size, view.nbytes
            known = self._before.places[len(self._places) :][:1]
            if known == [place] and is_equal(self._before[index], view):
                self._note(place)
                return True
            self._part_from_before(self._before)
        try:
            if not self._is_digested or self._size + view.nbytes > self._most_digested:
                self._copy(view)
                self._is_digested = False
            else:
                self._digest = self._copy_and_digest(view)
        except OSError:  # no descriptor is left, or files may not be so large
            return False
        self._note((index, self._size, view.nbytes))
        return True

    def _note(self, place: Place) -> None:
        self._places.append(place)
        self._size += -(-place[2] // _ALIGNMENT) * _ALIGNMENT

    def _part_from_before(self, before: StoredPayload) -> None:
        """Write the buffers that were the same as before: the next one is not.

        Raises:
            OSError: they cannot be written.
        """
        places, self._before, self._places, self._size = self._places, None, [], 0
        for index, _, _ in places:
            if not self.put(index, before[index]):
                raise OSError(errno.EMFILE, "large buffers cannot be written to shared memory")

    def _copy_and_digest(self, view: memoryview) -> hashlib._Hash:
        import hashlib  # here: it loads OpenSSL, and most functions have no large buffers

        # The digest takes most of the time, and processors have instructions for SHA-256.
        digest = hashlib.sha256() if self._digest is None else self._digest.copy()
        # Both release the interpreter's lock: on two processors this takes half the time.
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
            self._fd, self._name = openable_memory()
        _write(self._fd, view, self._size)

    def finish(self, payload: list[Buffer]) -> list[Buffer]:
        """Return the payload with views of the block in it. The block takes no more buffers.

        Raises:
            OSError: no address space is left.
        """
        if not self._places:
            return payload
        if self._before is not None:
            if self._places == self._before.places:
                block, digest = self._before.block, self._before.digest
                return StoredPayload(payload, block, self._places, digest)
            self._part_from_before(self._before)
        block = Block(self._fd, 0, prot=mmap.PROT_READ)
        block.own(self._fd, self._name)
        self._fd = -1
        return StoredPayload(
            payload,
            block,
            self._places,
            self._digest.digest() if self._digest is not None and self._is_digested else b"",
        )

    def close(self) -> None:
        """Release a block that was not finished. May be called twice."""
        if self._fd >= 0:
            release(self._fd, self._name, os.getpid())
            self._fd = -1


def store(payload: Payload, *, whole: bool = False) -> Payload:
    """Return a payload whose large buffers are in a block. It is the same payload if it has no
    large buffers, if they are in a block already, or if no block can be had.

    whole: all buffers, which must not change any more, go into the block, if they are large
        together.
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

    The buffers are mapped, so that processes share their pages. If they are `writable`, only this
    process sees what it writes (copy on write).

    Raises:
        OSError: a block does not exist any more.
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
    """Return a descriptor of memory with a copy of this buffer, which nobody can change any more.

    Raises:
        OSError: no descriptor is left, or files may not be so large.
    """
    return sealed_memory(lambda fd: _write(fd, memoryview(buffer).cast("B"), 0))


def adopt(fd: int, size: int) -> memoryview:
    """Map a block that `new_block` has made in another process. Return a view of it, which may be
    written to; only this process sees what it writes. The `Block` owns the descriptor from here on.

    Raises:
        OSError: the block cannot be mapped.
        ValueError: the descriptor is of no block, or of one of another size.
    """
    if os.fstat(fd).st_size != size or not is_sealed(fd):
        raise ValueError("this is no block, or of another size")
    block = _private(fd, size)
    block.own(fd)
    return memoryview(block)


def in_own_block(buffer: Buffer) -> Buffer:
    """Return a copy of a buffer in a block of this process alone, which may be moved to a file. A
    small buffer is returned itself.

    Raises:
        OSError: no address space is left.
    """
    if len(buffer) < LARGE:
        return buffer
    block = Block(-1, len(buffer), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block[:] = buffer
    return memoryview(block)


def in_shared_block(buffer: Buffer) -> Buffer:
    """Return a copy of a buffer in a block that others can open, which may be moved to a file. A
    small buffer, or one in such a block, is returned itself.

    Raises:
        OSError: no descriptor, or address space, is left.
    """
    if len(buffer) < LARGE or block_of(buffer) is not None:
        return buffer
    return adopt(new_block(buffer), len(buffer))


def protected(buffers: Sequence[Buffer]) -> list[memoryview]:
    """Return views of these buffers that cannot be written to. Small buffers are copied into memory
    that nobody can write to, as nobody can to a block: a library that overlooks that an array is
    read-only crashes there, and changes nothing that later calls find.

    Raises:
        OSError: no address space is left.
    """
    views = [memoryview(one).cast("B").toreadonly() for one in buffers]
    padded = {
        index: -(-view.nbytes // _ALIGNMENT) * _ALIGNMENT
        for index, view in enumerate(views)
        if 0 < view.nbytes < LARGE
    }
    if padded:
        size, offset = sum(padded.values()), 0
        block = Block(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for index, room in padded.items():
            end = offset + views[index].nbytes
            block[offset:end] = views[index]
            views[index] = memoryview(block)[offset:end].toreadonly()
            offset += room
        _check(_system_call("mprotect")(_place_of(block), size, mmap.PROT_READ) == 0)
    return views


def block_of(buffer: Buffer) -> Block | None:
    """Return the block that a buffer covers whole, if others can open the block; else None."""
    block = buffer.obj if type(buffer) is memoryview else None
    if type(block) is not Block or block.fd < 0 or len(buffer) != len(block):
        return None
    return block if block.path else None


def writable(buffer: Buffer) -> Buffer:
    """Return a buffer with the same content that may be written to, unseen by others."""
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
    if block is not None and is_sealed(block.fd):
        yield block.fd
        return
    fd = new_block(buffer)
    try:
        yield fd
    finally:
        os.close(fd)


class ResultBlocks:
    """Blocks that other processes may need. They stay open as long as they live, up to
    `MOST_BLOCKS`, since a process may have only so many descriptors.

    Args:
        most_bytes: the most bytes that the blocks have in memory.
        folder: the folder where the oldest blocks go, as files, if they have more.
    """

    def __init__(self, most_bytes: float = math.inf, folder: Path | None = None) -> None:
        from pathlib import Path

        self.most_bytes = most_bytes
        self.folder = folder or Path()
        self._blocks: dict[int, weakref.ref[Block]] = {}
        self._open: set[int] = set()
        self._in_memory: dict[int, int] = {}
        """The sizes of the blocks in memory, oldest first; together they are `_bytes`."""
        self._bytes = 0
        self._gone: deque[int] = deque()
        """The blocks that were freed, in any thread, since the last `keep`."""
        self._numbers = itertools.count()
        self._has_warned = False

    def keep(self, buffers: Iterable[Buffer]) -> None:
        """Keep the blocks among these buffers.

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
        """Keep buffers that have come, in blocks that `copy` makes, and return them. If there is no
        room for them, the buffers are returned as they came, in memory; a warning says so, once.
        """
        try:
            taken = list(map(copy, buffers))
            self.keep(one for one, sent in zip(taken, buffers, strict=True) if one is not sent)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                import logging  # here: a runner does without, and starts the sooner

                logging.getLogger("gridengine").warning(
                    "results that calls need fill %.0f bytes of memory of this process, and %s "
                    "takes no more (%s): more of them stay in memory",
                    self.most_bytes,
                    self.folder,
                    error.strerror,
                )
            return buffers
        return taken


def disown(buffers: Iterable[Buffer]) -> None:
    """Close the descriptors of the blocks among these buffers: no other process may open them."""
    for buffer in buffers:
        if type(buffer) is memoryview and type(buffer.obj) is Block:
            buffer.obj.disown()


def _private(fd: int, size: int) -> Block:
    """Map a file copy on write. `mmap.mmap` would keep a descriptor of it open; a process that
    holds a thousand results would have none left.
    """
    block = Block(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _map_over(block, fd)
    return block


def _map_over(block: Block, fd: int) -> None:
    """Map a file over the memory of a block."""
    place = _place_of(block)
    flags, protection = mmap.MAP_PRIVATE | _MAP_FIXED, mmap.PROT_READ | mmap.PROT_WRITE
    _check(_system_call("mmap")(place, len(block), protection, flags, fd, 0) == place)


def _place_of(block: Block) -> int:
    import ctypes  # here: few need it

    return ctypes.addressof(ctypes.c_char.from_buffer(block))


@functools.cache
def _system_call(name: str) -> Any:
    """Return mmap(2) or mprotect(2)."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), name)
    call.restype, word, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    call.argtypes = word, word, number, number, number, ctypes.c_long
    if name == "mprotect":
        call.restype, call.argtypes = number, (word, word, number)
    return call


def _check(done: bool) -> None:
    if not done:
        import ctypes

        why = ctypes.get_errno()
        raise OSError(why, os.strerror(why))


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
    """Return a payload of the buffers in blocks and the others, in their order."""
    payload = list(others)
    for index, buffer in sorted(
        (index, view[offset : offset + size])
        for view, places in mapped
        for index, offset, size in places
    ):
        payload.insert(index, buffer)
    return payload
