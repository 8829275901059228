"""Codecs: arguments and results in a form that other languages read and write, instead of pickles.

Functions of such calls are known by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import msgspec

from gridengine.errors import PicklingError
from gridengine.serialize.exceptions import traceback_text
from gridengine.serialize.payload import Buffer, Payload
from gridengine.serialize.unpicklable import name_of, reason

PICKLE = "pickle"


class Codec(msgspec.Struct, frozen=True):
    """One form of values. `encode` makes bytes of a value, `decode` a value of bytes."""

    name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[Buffer], Any]

    def load_items(self, payload: Payload) -> list[Any]:
        """Return the items of a list of calls.

        Raises:
            ValueError: the payload is not a list in this form.
        """
        items = self.decode(payload[0])
        if not isinstance(items, list):
            raise ValueError(f"the calls are not a list in {self.name}")
        return items

    def dump_values(
        self,
        values: Sequence[Any],
        *,
        describe: Callable[[int], str] = "the result of call {}".format,
        whole_classes: bool = False,
    ) -> list[Buffer]:
        """Return the payload of a list of results.

        Raises:
            PicklingError: a result has no such form.
        """
        try:
            return [self.encode(list(values))]
        except Exception as error:
            what = describe(0) if len(values) == 1 else "a result"
            raise PicklingError(f"{what} has no form in {self.name}: {reason(error)}") from None

    def dump_exception(
        self, error: BaseException, arguments: str = "", *, origin: BaseException | None = None
    ) -> list[Buffer]:
        """Return the payload of an exception: its type's name, its text, its traceback, and the
        call's arguments, all as text. Never fails.
        """
        told = {
            "type": name_of(type(error)),
            "message": reason(error).partition(": ")[2],
            "traceback": traceback_text(origin or error),
            "arguments": arguments,
        }
        texts = {key: text.encode(errors="backslashreplace") for key, text in told.items()}
        return [self.encode({key: text.decode() for key, text in texts.items()})]


CODECS: Mapping[str, Codec] = MappingProxyType(
    {
        "msgpack": Codec("msgpack", msgspec.msgpack.encode, msgspec.msgpack.decode),
        "json": Codec("json", msgspec.json.encode, msgspec.json.decode),
    }
)
"""All codecs but pickle, by their names."""


def is_importable(name: str) -> bool:
    """Return whether a function of this name is imported (`module:function`). Other names are of
    functions that workers announce.
    """
    return ":" in name


def import_function(name: str) -> Callable[..., Any]:
    """Return a function by its name: `module:function`, or `module:class.method`.

    Raises:
        Exception: there is no such function, or its module cannot be imported.
    """
    module, _, path = name.partition(":")
    function = attrgetter(path)(importlib.import_module(module))
    if not callable(function):
        raise TypeError(f"{name} is no function")
    return function  # type: ignore[no-any-return]
