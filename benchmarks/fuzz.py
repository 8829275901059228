"""Throw random and mutated frames at all that reads from a socket, and see that each is a message
or a `ProtocolError`.

    python benchmarks/fuzz.py [--frames 2000000] [--seed 1] [--minutes 10]

What is tried: `protocol.decode`; a `Session` before it, as on a connection; and the core of a
dispatcher behind it, which is given what has been accepted, as from a worker that has work.
Whatever is not one of ours, any other exception and anything that takes long, is printed with what
reproduces it, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import struct
import sys
import time
import traceback
import typing
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gridengine._version import __version__
from gridengine.dispatcher.core.events import Received, Tick
from gridengine.dispatcher.core.policy import Policy
from gridengine.dispatcher.core.state_machine import StateMachine
from gridengine.errors import ProtocolError
from gridengine.requests import Function, Submitted, Task
from gridengine.wire import messages
from gridengine.wire.framing import MAGIC, SMALL, decode, encode
from gridengine.wire.messages import Assignment, Message, Result
from gridengine.wire.session import Session

Frames = list[bytes]
EDGES = [
    0,
    1,
    -1,
    2,
    127,
    128,
    255,
    256,
    2**15,
    SMALL,
    SMALL + 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
]
NAMES = [kind.__name__ for kind in typing.get_args(Message)]
WORKER = b"worker"


def number(chance: random.Random) -> int:
    """Return a number of which many are at the edge of something."""
    return chance.choice(EDGES) if chance.random() < 0.3 else chance.randrange(0, 12)


def blob(chance: random.Random, most: int = 60) -> bytes:
    """Return a few random bytes."""
    return chance.randbytes(chance.randrange(most))


def value(chance: random.Random, depth: int = 3) -> object:
    """Return anything that msgpack can carry."""
    kind = chance.randrange(9 if depth else 7)
    if kind == 7:
        return [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind == 8:
        return {str(number(chance)): value(chance, depth - 1) for _ in range(chance.randrange(3))}
    return [
        None,
        True,
        number(chance),
        chance.uniform(-1e13, 1e13),
        float("nan"),
        "text",
        blob(chance, 9),
    ][kind]


def result(chance: random.Random) -> Result:
    """Return a result that may be an answer to something, and may be not."""
    start, status = chance.randrange(6), chance.randrange(3)
    stop = start + 1 if status else start + chance.randrange(4)
    output = chance.random() < 0.2
    return Result(
        chance.randrange(60),
        start,
        stop,
        status,
        chance.random(),
        3 if output else chance.randrange(3),
        output,
    )


def message(chance: random.Random) -> tuple[Message, Frames]:
    """Return a well-formed message and its buffers."""
    run = chance.randrange(60)
    items = range(chance.randrange(4))
    make: list[Callable[[], Message]] = [
        lambda: messages.Hello(
            messages.VERSION,
            __version__,
            "3.11",
            chance.choice(["run", "other"]),
            "host",
            number(chance),
            number(chance),
            "",
        ),
        messages.Welcome,
        lambda: messages.Refuse("no"),
        lambda: messages.Define(blob(chance, 9), [b"/a"], b"/b", 1),
        lambda: messages.Forget([blob(chance, 9)]),
        lambda: messages.Assign(
            [Assignment(run, 1, b"f", 0, 2, 1, 0, buffers=chance.randrange(3)) for _ in items]
        ),
        lambda: messages.Cancel([number(chance)], number(chance)),
        messages.Stop,
        messages.Beat,
        lambda: messages.Started(run, number(chance)),
        lambda: messages.Pushed(run, 1),
        lambda: messages.Results([result(chance) for _ in items]),
        lambda: messages.Crashed(
            run,
            number(chance),
            number(chance),
            chance.choice(["crash", "timeout", "cancelled", "memory"]),
            1,
        ),
        lambda: messages.Returned([*{chance.choice([run, number(chance)]) for _ in items}]),
        lambda: messages.Shortened(run, chance.randrange(6)),
        lambda: messages.Saved(run, chance.randrange(6)),
        messages.Leaving,
        lambda: messages.Waits(chance.randrange(6), run),
        lambda: messages.Resumes(chance.randrange(6), run),
        lambda: messages.Fetched(blob(chance, 9)),
        lambda: messages.Serves(["tcp://node:1"], "key"),
        lambda: messages.Pulled(blob(chance, 9), number(chance), chance.choice(["", "absent"])),
        lambda: messages.Measured(chance.random(), chance.randrange(1 << 30)),
        lambda: messages.Goodbye(
            chance.choice(["walltime", "terminated"]),
            chance.choice([None, [number(chance) for _ in items]]),
        ),
    ]
    chosen = chance.choice(make)()
    count = chosen.count_buffers()
    return chosen, [
        bytes(SMALL + 1) if chance.random() < 0.02 else blob(chance, 9) for _ in range(count)
    ]


def header(chance: random.Random) -> Frames:
    """Return frames whose header is msgpack, of anything in the shape of a message."""
    body = [chance.choice(NAMES), *(value(chance) for _ in range(chance.randrange(8)))]
    sizes = (
        [number(chance) for _ in range(chance.randrange(4))]
        if chance.random() < 0.8
        else value(chance)
    )
    try:
        return [
            MAGIC + msgspec.msgpack.encode([sizes, body]),
            *(blob(chance) for _ in range(chance.randrange(3))),
        ]
    except OverflowError:
        return [MAGIC]


def noise(chance: random.Random) -> Frames:
    """Return random frames, half of them behind the right first bytes."""
    return [
        (MAGIC if chance.random() < 0.5 else b"") + blob(chance) for _ in range(chance.randrange(4))
    ]


def mutated(chance: random.Random) -> Frames:
    """Return the frames of a message after a few accidents."""
    frames = [bytearray(frame) for frame in encode(*message(chance))]
    for _ in range(chance.randrange(4)):
        if not frames:
            break
        index = chance.randrange(len(frames))
        frame = frames[index]
        at = chance.randrange(len(frame) + 1)
        match chance.randrange(7):
            case 0:
                frame[at : at + 1] = chance.randbytes(1)
            case 1:
                frame[at : at + 5] = bytes(
                    [chance.choice(b"\xc6\xc9\xdb\xdd\xdf\xce\xcf\xd3")]
                ) + chance.randbytes(4)
            case 2:
                del frame[at:]
            case 3:
                frame[at:at] = chance.randbytes(chance.randrange(9))
            case 4:
                del frames[index]
            case 5:
                frames.insert(index, frame[:])
            case 6:
                frames[index], frames[0] = frames[0], frames[index]
    return [bytes(frame) for frame in frames]


KINDS: dict[str, Callable[[random.Random], Frames]] = {
    "mutated": mutated,
    "shaped": header,
    "random": noise,
}


class Core:
    """A dispatcher's core with a worker that has work; made anew now and then, and when the worker
    has left. `checked`: all its invariants are, after each event.
    """

    def __init__(self, *, checked: bool) -> None:
        self.machine = StateMachine(
            Policy(
                max_workers=1,
                slots=4,
                idle_seconds=1e9,
                version=__version__,
                python="3.11",
                run_id="run",
            ),
            checked=checked,
        )
        self.now = 0.0
        tasks = [Task(id, [b"x"], 6) for id in range(40)]
        self.machine.handle(Submitted(Function(b"f", [b"f"], (b"/",), b"/", "f"), tasks), 0.0)
        self.take(
            messages.Hello(messages.VERSION, __version__, "3.11", "run", "host", 1, 4, ""), []
        )

    def take(self, said: Message, buffers: Frames) -> None:
        self.now += 0.001
        self.machine.handle(Received(WORKER, said, buffers), self.now)
        self.machine.handle(Tick(), self.now)

    @property
    def done(self) -> bool:
        state = self.machine.state
        return WORKER not in state.workers or not state.open_tasks


class Trial:
    """Gives frames to what reads them, and counts what came of it."""

    def __init__(self, *, checked: bool = False) -> None:
        self.checked = checked
        self.core = Core(checked=checked)
        self.session = Session(256 * 1024)
        self.outcomes: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()

    def give(self, kind: str, frames: Frames, chance: random.Random) -> None:
        self.outcomes[f"{kind}: {self._outcome(frames, chance)}"] += 1

    def _outcome(self, frames: Frames, chance: random.Random) -> str:
        try:
            self.session.receive([self._envelope(chance), *frames])
        except ProtocolError:
            self.session = Session(256 * 1024)
        if chance.random() < 0.01:
            self.session = Session(256 * 1024)
        try:
            said, buffers = decode(frames)
        except ProtocolError:
            return "refused"
        if len(buffers) != said.count_buffers() or sum(map(len, buffers)) != sum(
            map(len, frames[1:])
        ):
            raise AssertionError("accepted, and its buffers are not what was sent")
        self.accepted[type(said).__name__] += 1
        if self.core.done or chance.random() < 0.001:
            self.core = Core(checked=self.checked)
        self.core.take(said, [bytes(buffer) for buffer in buffers])
        return "accepted"

    def _envelope(self, chance: random.Random) -> bytes:
        if chance.random() < 0.2:
            return blob(chance, 30)
        numbers = chance.choice(EDGES) % 2**64, chance.randrange(3), chance.randrange(3)
        return struct.pack(
            "<BQQI", chance.randrange(6), *(numbers if chance.random() < 0.3 else (1, 0, 0))
        )


def trials(seed: int, count: int) -> Iterator[tuple[int, str, Frames, random.Random]]:
    """Yield each trial: its number, its kind and its frames, all from the seed."""
    names = list(KINDS)
    for index in range(count):
        chance = random.Random(f"{seed}/{index}")
        kind = names[index % 4 % 3]  # two in four are mutated
        yield index, kind, KINDS[kind](chance), chance


def main() -> int:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description="Fuzz what reads from a socket.")
    parser.add_argument(
        "--frames", type=int, default=2_000_000, help="how many messages to try (default 2,000,000)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after this time")
    parser.add_argument(
        "--seconds-at-most",
        type=float,
        default=0.25,
        help="for one message, in processor time (default 0.25)",
    )
    options = parser.parse_args()
    trial, frames_tried, slowest, failures = Trial(), 0, 0.0, 0
    began, peak_before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for index, kind, frames, chance in trials(options.seed, options.frames):
        start = time.process_time()
        try:
            trial.give(kind, frames, chance)
        except Exception as error:
            failures += 1
            print(f"seed {options.seed}, trial {index} ({kind}): {frames!r}", file=sys.stderr)
            traceback.print_exception(error)
        slowest = max(slowest, time.process_time() - start)
        frames_tried += len(frames)
        if time.monotonic() - began > 60 * options.minutes:
            break
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_before) / 1024
    print(
        f"{index + 1:,} messages, {frames_tried:,} frames, seed {options.seed}, in "
        f"{time.monotonic() - began:.0f} s"
    )
    for name, count in sorted(trial.outcomes.items()):
        print(f"  {name:<20} {count:>10,}")
    print(
        "  accepted by kind:",
        ", ".join(f"{name} {count:,}" for name, count in trial.accepted.most_common()),
    )
    print(
        f"  slowest message {slowest * 1000:.1f} ms of processor time; peak memory grew by "
        f"{grown:.0f} MB"
    )
    print(f"  other exceptions: {failures}")
    return int(bool(failures) or slowest > options.seconds_at_most)


if __name__ == "__main__":
    sys.exit(main())
