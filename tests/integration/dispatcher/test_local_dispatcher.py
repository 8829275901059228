"""`LocalDispatcher`: a dispatcher for a block of code, which leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import gridengine
from gridengine.errors import ConfigurationError, DispatcherGone
from gridengine.serialize.payload import Buffer
from gridengine.wire.block_socket import BlockSocket
from tests.support.waiting import wait_until


def test_calls_run_on_its_workers_and_nothing_is_left() -> None:
    with gridengine.LocalDispatcher(n_workers=2) as dispatcher:
        folder = Path(dispatcher.address).parent
        with gridengine.Client(dispatcher.address) as client:
            assert client.map(lambda x: x + 1, range(10)) == list(range(1, 11))
            pid = client.describe()["pid"]
        assert psutil.Process(pid).is_running()
    assert not psutil.pid_exists(pid)
    assert not folder.exists()
    dispatcher.close()


def test_large_results_and_arguments_go_beside_the_encrypted_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers: list[bytes] = []
    take, put = BlockSocket.take, BlockSocket.put

    def note_taken(self: BlockSocket, number: bytes, size: int) -> memoryview:
        numbers.append(number)
        return take(self, number, size)

    def note_put(self: BlockSocket, buffer: Buffer) -> bytes:
        numbers.append(put(self, buffer))
        return numbers[-1]

    monkeypatch.setattr(BlockSocket, "take", note_taken)
    monkeypatch.setattr(BlockSocket, "put", note_put)
    size = 3_000_000
    with gridengine.LocalDispatcher(1) as dispatcher, gridengine.Client(dispatcher.address) as own:
        assert own.map(bytes, [size] * 3) == [bytes(size)] * 3
        assert len(numbers) >= 1
        numbers.clear()
        assert own.submit(len, b"x" * size).result() == size
        assert len(numbers) == 1
        assert b"" not in numbers


def test_calls_that_have_not_ended_fail_with_it() -> None:
    with gridengine.LocalDispatcher(n_workers=1) as dispatcher:
        client = gridengine.Client(dispatcher.address)
        futures = [client.submit(signal.pause) for _ in range(100)]  # not all are handed over
    for future in futures:
        with pytest.raises(DispatcherGone, match="has ended"):
            future.result(timeout=60)
    with pytest.raises(DispatcherGone, match="has ended"):
        client.map(abs, [1])
    client.disconnect()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_local_dispatcher_ends_when_its_parent_dies(number: signal.Signals) -> None:
    code = (
        "import gridengine, signal\n"
        "dispatcher = gridengine.LocalDispatcher(1)\n"
        "print(dispatcher.address, gridengine.Client(dispatcher.address).describe()['pid'])\n"
        "import sys; sys.stdout.flush(); signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    address, pid = parent.stdout.readline().split()
    parent.send_signal(number)
    parent.wait(60)
    wait_until(lambda: not psutil.pid_exists(int(pid)))
    wait_until(lambda: not Path(address).parent.exists())


@pytest.mark.parametrize("count", [0, -1, 1.5, "2"])
def test_a_wrong_number_of_workers_is_refused(count: object) -> None:
    with pytest.raises((TypeError, ConfigurationError), match="n_workers"):
        gridengine.LocalDispatcher(count)  # type: ignore[arg-type]


@pytest.mark.promise
def test_clients_are_told_when_it_was_killed() -> None:
    with gridengine.LocalDispatcher(1) as dispatcher:
        folder = Path(dispatcher.address).parent
        client = gridengine.Client(dispatcher.address)
        pid = client.describe()["pid"]
        future = client.submit(signal.pause)
        wait_until(lambda: client.describe()["running"] == 1)
        psutil.Process(pid).kill()
        with pytest.raises(DispatcherGone, match=f"process {pid} of this machine, was killed"):
            future.result(timeout=60)
        with pytest.raises(DispatcherGone, match="was killed"):
            client.submit(abs, 1).result(timeout=60)
        client.disconnect()
        with pytest.raises(DispatcherGone, match="was killed"):
            gridengine.Client(dispatcher.address).submit(abs, 1)
    assert not folder.exists()  # nor is it an error at the end of the block
