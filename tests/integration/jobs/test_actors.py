"""Objects that live in a worker: on workers of this machine, and on those that connect over TCP."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gridengine
from gridengine import ActorLost
from tests.support.script_driver import MakeScript
from tests.support.tcp_scheduler import TcpScheduler
from tests.support.waiting import wait_until


class Counter:
    def __init__(self, value: int = 0, folder: Path | None = None) -> None:
        self.folder = folder
        if value < 0:
            raise ValueError("below zero")
        self.value = value

    def increment(self, by: int = 1) -> int:
        self.value += by
        return self.value

    def fail(self) -> None:
        self.value += 100
        raise LookupError("not here")

    def where(self) -> tuple[int, int]:
        return os.getpid(), os.getppid()

    def exit(self) -> None:
        os._exit(3)

    def unpicklable(self) -> Any:
        return threading.Lock()

    def total(self, array: Any) -> Any:
        return array * 2

    async def later(self, by: int) -> int:
        await asyncio.sleep(0)
        return self.increment(by)

    def wait_for(self, name: str) -> str:
        assert self.folder is not None
        (self.folder / f"{name}.begun").touch()
        wait_until(lambda: (self.folder / name).exists())  # type: ignore[operator]
        return name

    def sleep(self) -> None:
        threading.Event().wait(600)

    def fork(self) -> int:
        return os.fork()

    def __del__(self) -> None:
        if self.folder is not None:
            (self.folder / "deleted").touch()


@pytest.fixture(
    scope="module", params=[gridengine.ProcessScheduler, TcpScheduler], ids=["local", "tcp"]
)
def place(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param(2) as made:
        yield made


@pytest.mark.promise
def test_the_death_of_its_process_fails_all_calls_and_nothing_is_run_again(place: Any) -> None:
    counter = place.actor(Counter, 5)
    assert counter.increment().result() == 6
    dying, after = counter.exit(), counter.increment()
    for future in (dying, after, counter.increment()):
        with pytest.raises(ActorLost, match=r"Counter-\d+ is lost: .* exited with status 3") as e:
            future.result()
        assert "make the actor anew" in str(e.value)
        assert isinstance(e.value.__cause__, gridengine.WorkerCrashed)
    assert "has ended" in repr(counter)
    counter.shutdown()
    assert place.actor(Counter, 5).increment().result() == 6


@pytest.mark.promise
def test_when_nobody_has_its_handle_it_ends_after_the_calls_that_were_made(
    place: Any, tmp_path: Path
) -> None:
    future = place.actor(Counter, folder=tmp_path).increment()
    gc.collect()
    assert future.result() == 1
    wait_until((tmp_path / "deleted").exists)


def test_a_process_that_a_method_forks_is_not_the_actor(place: Any) -> None:
    with place.actor(Counter) as counter:
        assert counter.fork().result() > 0
        assert counter.increment().result() == 1


def test_a_call_makes_one_of_its_own_which_ends_with_the_call(place: Any, tmp_path: Path) -> None:
    def counted() -> int:
        counter = gridengine.current_scheduler().actor(Counter, 1, tmp_path)
        total: int = counter.increment().result()
        counter.wait_for("never")
        wait_until((tmp_path / "never.begun").exists)
        return total

    [total] = gridengine.map(lambda _: counted(), [0], scheduler=place)
    assert total == 2
    with place.actor(Counter) as first, place.actor(Counter) as second:  # both places are free
        assert [first.increment().result(), second.increment().result()] == [1, 1]


def doubled(x: int) -> int:
    return 2 * x


class Summer:
    def __init__(self) -> None:
        self.total = 0

    def add(self, x: int) -> int:
        self.total += sum(gridengine.map(doubled, [x, x]))
        return self.total


def test_a_call_its_actor_and_the_actors_calls_take_turns_at_the_only_slot(
    place: Any,
) -> None:
    def summed(count: int) -> list[int]:
        summer = gridengine.current_scheduler().actor(Summer)
        before = gridengine.map(doubled, [count])
        return before + [summer.add(1).result() for _ in range(count)]

    with type(place)(1) as own:
        assert gridengine.map(summed, [2, 3], scheduler=own) == [[4, 4, 8], [6, 4, 8, 12]]


SCRIPT = """
class Log:
    def __init__(self, path):
        self.path = path

    def write(self, text):
        with open(self.path, "a") as file:
            print(text, file=file)
        print("said", text)

if __name__ == "__main__":
    scheduler = gridengine.ProcessScheduler(1)
    log = scheduler.actor(Log, "output")
    for number in range(100):
        log.write(number)
    {ends}
"""


@pytest.mark.parametrize("ends", ["pass", 'raise SystemExit("exits")'])
def test_at_the_end_of_a_script_the_calls_that_were_made_run(
    script: MakeScript, tmp_path: Path, ends: str
) -> None:
    ended = script(SCRIPT.format(ends=ends)).run()
    assert ended.stderr.strip() in ("", "exits")
    assert (tmp_path / "output").read_text().split() == [str(number) for number in range(100)]
    assert ended.stdout.count("said") == 100


def test_when_its_client_is_killed_it_ends(script: MakeScript) -> None:
    made = script("""
        import os, signal

        class Sleeper:
            def where(self):
                return os.getpid()

        if __name__ == "__main__":
            sleeper = gridengine.ProcessScheduler(1).actor(Sleeper)
            sleeper.where().result()
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert made.run().returncode == -signal.SIGKILL
    wait_until(lambda: not made.processes())
