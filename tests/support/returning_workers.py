"""Workers of a dispatcher that may be killed at any moment, and its end of their connections."""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from gridengine.serialize.payload import Payload
from gridengine.wire.messages import (
    CANCELLED,
    CRASH,
    RETRYABLE,
    VALUES,
    VERSION,
    Assign,
    Cancel,
    Crashed,
    Goodbye,
    Hello,
    Message,
    Recall,
    Refuse,
    Result,
    Results,
    Returned,
    Shortened,
    Stop,
    Welcome,
)
from gridengine.worker.held_runs import HeldRuns


@dataclass
class Item:
    """A run as its worker sees it; the calls before `done` are answered, `done` may be begun."""

    run: int
    task: int
    done: int
    stop: int
    once: bool
    begun: bool = False


class Worker:
    """An honest worker; also its end of the connection."""

    def __init__(self, id: bytes, begun: Counter[tuple[int, int]]) -> None:
        self.id = id
        self.begun_calls = begun
        self.sent = self.acknowledged = self.epoch = self.session = 0
        self.welcome = False
        self.out: deque[tuple[int, Message, Payload]] = deque()
        self.inbox: deque[Message] = deque()
        self.items: deque[Item] = deque()
        self.answered: set[tuple[int, int]] = set()
        self.alive = True
        self.hello = Hello(VERSION, "1", "3.11", "run", "node", 1, 1, id.decode())
        self.held = HeldRuns(self, lambda: self.hello)  # type: ignore[arg-type]
        self.send(self.hello)

    # as a client of a transport

    def send(self, message: Message, buffers: Payload = ()) -> None:
        self.sent += 1
        self.out.append((self.sent, message, buffers))

    def begin_again(self) -> None:
        self.sent = self.acknowledged = 0
        self.welcome = False
        self.session += 1
        self.out.clear()

    # as an agent

    def allocations(self) -> list[int]:
        return []

    def defined(self) -> list[bytes]:
        return []

    def end_nested_calls(self) -> None: ...

    def forget_output(self, under_way: Mapping[int, int]) -> None: ...

    def rejoin(self, epoch: int) -> None:
        """Be asked by a dispatcher to introduce itself."""
        if epoch == self.epoch and self.welcome:
            self.alive = False
        elif epoch != self.epoch:
            self.epoch = epoch
            self.held.introduce(self)  # type: ignore[arg-type]

    def handle(self) -> None:
        """Act on a message of the dispatcher."""
        message = self.inbox.popleft()
        if isinstance(message, Welcome):
            self.epoch, self.welcome = message.epoch, True
        elif isinstance(message, Assign):
            self.held.assigned(message)
            self.items += [
                Item(one.run, one.task, one.start, one.stop, one.once)
                for one in message.assignments
            ]
        elif isinstance(message, (Stop, Refuse)):
            self.held.send(Goodbye("told to", [one.run for one in self.items if one.begun]))
            self.items.clear()
            self.alive = isinstance(message, Stop)
        elif isinstance(message, Cancel):
            for item in [one for one in self.items if one.run in message.runs]:
                self.items.remove(item)
                index = item.done if item.begun else -1
                self.held.send(Crashed(item.run, index, -9, CANCELLED, 1), [b"", b""])
        elif isinstance(message, Recall):
            self._recall(message)

    def _recall(self, message: Recall) -> None:
        for item in [one for one in self.items if one.run in message.runs]:
            if not item.begun:
                self.items.remove(item)
                self.held.send(Returned([item.run]))
            elif item.done + 1 < item.stop:
                item.stop = item.done + 1
                self.held.send(Shortened(item.run, item.stop))

    def step(self, how: int) -> None:
        """Begin the next call, or answer it."""
        if not self.items:
            return
        item = self.items[0]
        if not item.begun:
            item.begun = True
            if item.once:
                self.begun_calls[item.task, item.done] += 1
            return
        if how % 11 == 10:
            self.items.popleft()
            self.held.send(Crashed(item.run, item.done, -11, CRASH, 1), [b"", b""])
            return
        status = RETRYABLE if how % 11 == 9 else VALUES
        several = status == VALUES and not item.once  # of others each is told of by itself
        stop = min(item.done + 1 + several * (how // 11 % 3), item.stop)
        values = [(item.task, index) for index in range(item.done, stop)]
        result = Result(item.run, item.done, stop, status, 1e-3)
        self.held.send(Results([result]), [pickle.dumps(values)])
        self.answered.update(values if status == VALUES else ())
        item.done, item.begun = stop, False
        if item.done == item.stop:
            self.items.popleft()


@dataclass
class Link:
    """The transport's end at one dispatcher process."""

    context: ClassVar[None] = None
    streams = keys = poller = close = context
    workers: dict[bytes, Worker]
    known: dict[bytes, int] = field(default_factory=dict)
    incoming: list[tuple[bytes, Message, Payload]] = field(default_factory=list)
    receipts: dict[bytes, int] = field(default_factory=dict)

    def send(self, peer: bytes, message: Message, buffers: Payload = ()) -> None:
        if self.known.get(peer) == self.workers[peer].session:
            self.workers[peer].inbox.append(message)

    def receive(
        self, ready: Iterable[int], now: float, most: int
    ) -> Iterator[tuple[bytes, Message, Payload]]:
        incoming, self.incoming = self.incoming, []
        yield from incoming

    def forget(self, peer: bytes) -> None:
        self.known.pop(peer, None)

    def lasts(self, peer: bytes) -> bool:
        return True

    def take_receipts(self) -> dict[bytes, int]:
        receipts, self.receipts = self.receipts, {}
        return receipts

    def acknowledge(self, receipts: Mapping[bytes, int]) -> None:
        for peer, number in receipts.items():
            worker = self.workers[peer]
            if self.known.get(peer) == worker.session:
                worker.acknowledged = max(worker.acknowledged, number)
