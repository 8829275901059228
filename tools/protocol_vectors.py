"""Write the test vectors of the protocol, for programs in other languages, the list of its
messages, and its version into the example in JavaScript: python tools/protocol_vectors.py

All is made of this package's own code; `tests/unit/wire/test_vectors.py` reads it.
"""

from __future__ import annotations

import inspect as source
import json
import re
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gridengine.dispatcher.core import worker_messages  # noqa: E402
from gridengine.dispatcher.serving import client_listener, clients  # noqa: E402
from gridengine.serialize.codecs import CODECS  # noqa: E402
from gridengine.wire import framing, messages, session  # noqa: E402
from gridengine.worker import agent  # noqa: E402

FOLDER = ROOT / "docs" / "protocol" / "vectors"
PAGE = FOLDER.parent / "messages.md"
EXAMPLE = ROOT / "examples" / "other_languages" / "protocol.mjs"
WAYS: dict[str, set[type]] = {
    "worker to dispatcher": {
        *worker_messages.HANDLERS,
        messages.Hello,
        messages.Beat,
        messages.Output,
        *get_args(messages.FromClient),
        messages.NestedEnded,
    },
    "dispatcher to worker": {
        *agent.HANDLERS,
        messages.Welcome,
        messages.Rejoin,
        messages.Refuse,
        messages.Stop,
        messages.Beat,
    },
    "worker to worker": {messages.Beat, messages.Pull, messages.Part},
    "client to dispatcher": {*clients.REQUESTS, *client_listener.HANDLERS},
    "dispatcher to client": {
        *get_args(messages.ToClient),
        messages.Controlled,
        messages.Durable,
        messages.Output,
        messages.Rejoin,
        messages.Refuse,
        messages.Goodbye,
        messages.Beat,
    },
}
IN_BUFFERS = (messages.LoggedRecord,)
"""What buffers hold that programs in other languages may want to read, or to write."""
HEAD = """# The messages

Made by `tools/protocol_vectors.py` of `gridengine/wire/messages`, whose words these are. A
message is an array: the name of its type, then its fields in this order; an item of a message's
lists is an array of its fields alone. Fields with a default may be left out from the end. What each
field means to whom is in [the protocol](../protocol.md).
"""
LARGE = framing.SMALL + 1
TAGS = {kind.__name__: kind.__struct_config__.tag for kind in get_args(messages.Message)}
"""The names of messages on the wire, by those of their classes: some classes have a plainer one."""


def readable(value: Any) -> Any:
    """Return a value as JSON has it; bytes are `{"hex": ...}`."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"hex": bytes(value).hex()}
    if isinstance(value, msgspec.Struct):
        fields = {name: readable(getattr(value, name)) for name in value.__struct_fields__}
        tag = value.__struct_config__.tag
        return {"type": tag, **fields} if tag else fields
    if isinstance(value, list | tuple):
        return [readable(one) for one in value]
    if isinstance(value, dict):
        return {key: readable(one) for key, one in value.items()}
    return value


def hexes(frames: Any) -> list[str]:
    """Return bytes in hexadecimal; long ones that repeat one byte as `00*32769`."""
    return [
        f"{frame[0]:02x}*{len(frame)}" if len(frame) > 999 and len(set(frame)) == 1 else frame.hex()
        for frame in map(bytes, frames)
    ]


def sample(kind: inspect.Type, number: int) -> Any:
    """Return some value of a type; no float that is a whole number, which some languages have
    no form for.
    """
    match kind:
        case inspect.UnionType(types=types):
            return sample(
                next(one for one in types if not isinstance(one, inspect.NoneType)), number
            )
        case inspect.IntType(ge=least, le=most):
            number = number if most is None else min(number, most)
            return number if least is None else max(number, least)
        case inspect.FloatType():
            return number + 0.5
        case inspect.StrType(pattern=pattern):
            return "text" if pattern is None else pattern[2:].partition("|")[0]
        case inspect.BytesType():
            return bytes([0, number, 255])
        case inspect.BoolType():
            return False
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return [sample(item, number)]
        case inspect.CollectionType(item_type=item):
            return [sample(item, number)]
        case inspect.TupleType(item_types=items):
            return tuple(sample(item, number + place) for place, item in enumerate(items))
        case inspect.DictType(value_type=item):
            return {"key": sample(item, number)}
        case inspect.AnyType():
            return "anything"
        case inspect.StructType(cls=cls, fields=fields):
            given = {
                field.name: 1 if field.name == "buffers" else sample(field.type, place)
                for place, field in enumerate(fields, number + 1)
            }
            return cls(**given)
    raise TypeError(kind)


def name_of(kind: Any) -> str:
    """Return the name of a message on the wire, or of an item."""
    return kind.__struct_config__.tag or kind.__name__


def message_vectors() -> list[dict[str, Any]]:
    """Return one message of each type, all its fields given."""
    found = []
    for kind in get_args(messages.Message):
        info = inspect.type_info(kind)
        message = sample(info, 0)
        if isinstance(message, messages.Results):  # its one value is one call's
            message = messages.Results([messages.Result(3, 4, 6, messages.VALUES, 0.5)])
        buffers = [b"buffer %d" % place for place in range(message.count_buffers())]
        found.append(message_vector(name_of(kind), message, buffers))
    return found


def message_vector(name: str, message: Any, buffers: list[bytes]) -> dict[str, Any]:
    return {
        "name": name,
        "message": readable(message),
        "buffers": hexes(buffers),
        "frames": hexes(framing.encode(message, buffers)),
    }


def framing_vectors() -> list[dict[str, Any]]:
    """Return messages whose buffers travel differently: small, large, empty."""
    fetched = messages.Fetched
    large = bytes(LARGE)
    cases = {
        "no buffers": [],
        "an empty buffer": [b""],
        "small buffers in one frame": [b"one", b"", b"three"],
        "a large buffer in a frame of its own": [large],
        "large and small buffers": [b"one", large, b"three", large],
    }
    return [
        message_vector(name, fetched(b"name", len(buffers)), buffers)
        for name, buffers in cases.items()
    ]


def malformed_vectors() -> list[dict[str, Any]]:
    """Return frames that are to be refused."""
    good = framing.encode(messages.Fetched(b"name", 1), [b"one"])
    header = bytes(good[0])
    cases: dict[str, list[bytes]] = {
        "no frame": [],
        "another version": [header[:3] + b"\x00" + header[4:], b"one"],
        "no protocol of ours": [b"HTTP/1.1", b"one"],
        "a header that ends too early": [header[:-1], b"one"],
        "a buffer that is missing": [header],
        "a buffer that is too long": [header, b"ones"],
        "a frame too many": [header, b"one", b"two"],
        "more buffers than the message announces": [
            bytes(framing.encode(messages.Beat(), [b"one"])[0]),
            b"one",
        ],
    }
    return [{"name": name, "frames": hexes(frames)} for name, frames in cases.items()]


def session_vectors() -> list[dict[str, Any]]:
    """Return what two ends send each other, step by step; pieces have 8 bytes, not 256 KiB."""
    ends = {"a": session.Session(8), "b": session.Session(8)}
    steps: list[dict[str, Any]] = []

    def send(end: str, *frames: bytes, numbered: bool = True) -> list[list[Any]]:
        one = ends[end]
        sent = one.number([*frames]) if numbered else [one.unnumbered([*frames])]
        steps.append(
            {
                "end": end,
                "send" if numbered else "send_unnumbered": hexes(frames),
                "gives": [hexes(envelope) for envelope in sent],
            }
        )
        return sent

    def receive(end: str, frames: list[Any]) -> list[list[Any]]:
        whole, answers = ends[end].receive(frames)
        steps.append(
            {
                "end": end,
                "receive": hexes(frames),
                "message": None if whole is None else hexes(whole),
                "answers": [hexes(envelope) for envelope in answers],
                "unacknowledged": ends[end].unacknowledged,
            }
        )
        return answers

    [first] = send("a", b"first")
    receive("b", first)
    receive("b", first)  # twice: dropped
    pieces = send("a", b"a long frame indeed", b"next")
    for piece in pieces:
        receive("b", piece)
    [beat] = send("b", b"beat", numbered=False)
    receive("a", beat)  # which acknowledges
    send("a", b"lost")
    [late] = send("a", b"late")
    [request] = receive("b", late)  # a gap: it asks
    for again in receive("a", request):
        receive("b", again)
    return steps


def codec_vectors() -> list[dict[str, Any]]:
    """Return lists of calls and of results, and an exception, in each codec."""
    cases = {
        "calls of one argument each (form 0)": [1, "text", None, True, 2.5, {"key": [1]}],
        "calls of several arguments each (form 1)": [[1, 2], ["a", "b"]],
        "calls of arguments and keywords (form 2)": [[[1, 2], {"base": 3}]],
        "results": [1, [2, 3], {"key": "value"}],
        "an exception": {
            "type": "ValueError",
            "message": "no 5",
            "traceback": "Traceback ...",
            "arguments": "argument 5",
        },
    }
    return [
        {"name": name, "codec": codec.name, "value": value, "hex": codec.encode(value).hex()}
        for codec in CODECS.values()
        for name, value in cases.items()
    ]


def vectors() -> dict[str, list[dict[str, Any]]]:
    """Return all vectors, by the names of their files."""
    return {
        "messages": message_vectors(),
        "framing": framing_vectors(),
        "malformed": malformed_vectors(),
        "session": session_vectors(),
        "codecs": codec_vectors(),
    }


def words_of(kind: inspect.Type) -> str:
    """Return what a field holds, in words."""
    match kind:
        case inspect.UnionType(types=types):
            return " or ".join(map(words_of, types))
        case inspect.StructType(cls=cls):
            return f"[{name_of(cls)}](#{name_of(cls).lower()})"
        case inspect.TupleType(item_types=items):
            return f"array of {', '.join(map(words_of, items))}"
        case inspect.DictType(value_type=item):
            return f"map of text to {words_of(item)}"
        case inspect.CollectionType(item_type=item):
            return f"list of {words_of(item)}"
        case inspect.StrType(pattern=pattern) if pattern:
            return "one of " + pattern[2:].partition(")")[0].replace("|", ", ")
    names = {"Int": "integer", "Str": "text", "Bool": "boolean", "None": "nil"}
    name = type(kind).__name__.removesuffix("Type")
    limits = [
        f"{sign} {limit:g}"
        for sign, key in ((">=", "ge"), (">", "gt"), ("<=", "le"))
        if (limit := getattr(kind, key, None)) is not None
    ]
    return " ".join([names.get(name, name.lower()), *limits])


def described(kind: type, told: dict[type, None]) -> str:
    """Return the section of a message, or an item; note the items that it lists."""
    fields = inspect.type_info(kind).fields  # type: ignore[attr-defined]
    ways = [way for way, kinds in WAYS.items() if kind in kinds]
    doc = re.sub(
        r"`(\w+)`",
        lambda match: f"`{TAGS.get(match[1], match[1])}`",
        source.cleandoc(kind.__doc__ or ""),
    )
    lines = [f"## {name_of(kind)}", "", *([", ".join(ways), ""] if ways else []), doc, ""]
    if fields:
        lines += ["| field | holds | default |", "| --- | --- | --- |"]
    for field in fields:
        given = ""
        if field.default_factory is not msgspec.NODEFAULT:
            given = f"`{json.dumps(readable(field.default_factory()))}`"
        elif not field.required:
            given = f"`{json.dumps(readable(field.default))}`"
        lines.append(f"| `{field.name}` | {words_of(field.type)} | {given} |")
        told.update(dict.fromkeys(items_in(field.type)))
    return "\n".join(lines).rstrip() + "\n"


def items_in(kind: inspect.Type) -> list[type]:
    """Return the items that a field has."""
    match kind:
        case inspect.StructType(cls=cls):
            return [cls]
        case inspect.UnionType(types=types) | inspect.TupleType(item_types=types):
            return [one for other in types for one in items_in(other)]
        case inspect.CollectionType(item_type=item):
            return items_in(item)
    return []


def page() -> str:
    """Return the page that lists all messages, and then the items of these."""
    told = dict.fromkeys((*get_args(messages.Message), *IN_BUFFERS))
    done: list[str] = []
    for place, kind in enumerate(iter_growing(told)):
        if place == len(get_args(messages.Message)):
            done.append("# Items of messages\n")
        done.append(described(kind, told))
    return "\n".join([HEAD, *done])


def iter_growing(told: dict[type, None]) -> Any:
    """Yield the keys of a dictionary that grows meanwhile."""
    place = 0
    while place < len(told):
        yield list(told)[place]
        place += 1


def example(text: str) -> str:
    """Return the example's protocol with this version."""
    return re.sub(r"VERSION = \d+;", f"VERSION = {messages.VERSION};", text)


def text_of(found: list[dict[str, Any]]) -> str:
    """Return what a file of vectors holds: one in a line."""
    lines = ",\n".join(json.dumps(one) for one in found)
    return f"[\n{lines}\n]\n"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, found in vectors().items():
        (FOLDER / f"{name}.json").write_text(text_of(found))
    PAGE.write_text(page())
    EXAMPLE.write_text(example(EXAMPLE.read_text()))


if __name__ == "__main__":
    main()
