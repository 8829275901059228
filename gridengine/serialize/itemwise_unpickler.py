"""Loads a pickled list so that only the items are missing that cannot be rebuilt.

It takes some thirty times as long as C `pickle`, and is used only after C `pickle` has failed. An
object that several items share is pickled within the first of them. If the first item fails, the
others need the shared object all the same. So where an operation fails, an `Unloadable` takes the
place of its result, and the next operations go on. Whatever is made of an `Unloadable` is marked as
failed too.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct

from gridengine.serialize.payload import ATOMS
from gridengine.serialize.unpicklable import rebuilding_error

Operation: TypeAlias = Callable[[Any], None]

OPERANDS = {
    **dict.fromkeys([pickle.GLOBAL, pickle.NEXT_BUFFER, pickle.EXT1, pickle.EXT2, pickle.EXT4], 0),
    **dict.fromkeys([pickle.TUPLE1, pickle.READONLY_BUFFER, pickle.BINPERSID], 1),
    **dict.fromkeys(
        [
            pickle.TUPLE2,
            pickle.STACK_GLOBAL,
            pickle.REDUCE,
            pickle.NEWOBJ,
            pickle.BUILD,
            pickle.APPEND,
        ],
        2,
    ),
    **dict.fromkeys([pickle.TUPLE3, pickle.NEWOBJ_EX, pickle.SETITEM], 3),
}
"""Operations that may fail, or that put objects together, and how many objects each takes from the
stack (see `pickletools`).
"""
ABOVE_MARK = {
    pickle.TUPLE: 0,
    pickle.FROZENSET: 0,
    pickle.APPENDS: 1,
    pickle.SETITEMS: 1,
    pickle.ADDITEMS: 1,
}
"""Operations that take all objects above the mark, and how many each takes from below it."""
FILLING = frozenset(
    [pickle.BUILD, pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS, pickle.ADDITEMS]
)
"""Operations that change their first object instead of making another."""


class Unloadable(Struct, eq=False):
    """Stands for an item that could not be rebuilt."""

    error: BaseException


def load_items(body: Any, buffers: Iterable[Any]) -> list[Any]:
    """Return the items of a pickled list. In the place of an item that cannot be rebuilt is an
    `Unloadable` with the error.

    Raises:
        Exception: this is not a pickled list.
    """
    return _ItemwiseUnpickler(io.BytesIO(body), buffers=buffers).items()


class _ItemwiseUnpickler(pickle._Unpickler):
    """The standard library's unpickler in Python, with operations that may fail.

    Objects are known by their `id`, so none may be freed meanwhile (`_alive`). An object that was
    put into another one may turn out later to have failed, as in a circle. So the holders of each
    object are noted.
    """

    stack: list[Any]
    metastack: list[list[Any]]
    append: Callable[[Any], None]

    def __init__(self, file: io.BytesIO, *, buffers: Iterable[Any]) -> None:
        super().__init__(file, buffers=buffers)
        self._errors: dict[int, BaseException] = {}
        self._holders: dict[int, list[Any]] = {}
        self._alive: list[Any] = []

    def items(self) -> list[Any]:
        return [
            Unloadable(self._errors[id(item)]) if id(item) in self._errors else item
            for item in self.load()
        ]

    def attempt(self, code: bytes, act: Operation) -> None:
        """Perform an operation, or note its error."""
        marked = code in ABOVE_MARK
        stack, depth = (
            (self.metastack[-1], len(self.metastack) - 1)
            if marked
            else (self.stack, len(self.metastack))
        )
        base = len(stack) - (ABOVE_MARK[code] if marked else OPERANDS[code])
        if base == depth == 0:  # the list itself
            act(self)
            return
        operands = [*stack[base:], *(self.stack if marked else ())]
        self._alive.append(operands)
        error = next((self._errors[id(one)] for one in operands if id(one) in self._errors), None)
        if error is None:
            try:
                act(self)
            except KeyboardInterrupt:
                raise
            except BaseException as raised:
                error = raised.with_traceback(raised.__traceback__ and raised.__traceback__.tb_next)
                error = rebuilding_error(error)
            else:
                self._note_holder(self.stack[-1], operands)
                return
        del self.metastack[depth:]
        del stack[base:]
        self.stack, self.append = stack, stack.append
        stack.append(operands[0] if code in FILLING else Unloadable(error))
        self._mark_failed(error)

    def pop(self, act: Operation) -> None:
        """Drop the last object: the return value of a function that filled the object before it.
        That object now holds the function's arguments.
        """
        gone = self.stack[-1] if self.stack else None
        act(self)
        if type(gone) is Unloadable and self.stack:
            self._mark_failed(gone.error)
        elif self.stack:
            self._note_holder(self.stack[-1], self._alive[-1])

    def _note_holder(self, holder: Any, parts: list[Any]) -> None:
        for part in () if type(holder) in ATOMS else parts:
            if part is not holder and type(part) not in ATOMS:
                self._holders.setdefault(id(part), []).append(holder)

    def _mark_failed(self, error: BaseException) -> None:
        """Mark the last object, and all that hold it, as failed."""
        if type(self.stack[-1]) in ATOMS:  # other items may have the same object
            self.stack[-1] = Unloadable(error)
        left = self.stack[-1:]
        while left:
            one = left.pop()
            self._alive.append(one)
            if self._errors.setdefault(id(one), error) is error:
                left += self._holders.pop(id(one), ())


_PLAIN: dict[int, Operation] = pickle._Unpickler.dispatch
_ItemwiseUnpickler.dispatch = {
    **_PLAIN,
    **{
        code[0]: partial(_ItemwiseUnpickler.attempt, code=code, act=_PLAIN[code[0]])
        for code in (*OPERANDS, *ABOVE_MARK)
    },
    pickle.POP[0]: partial(_ItemwiseUnpickler.pop, act=_PLAIN[pickle.POP[0]]),
}
