"""The output of jobs, on its way from their workers to the programs that submitted them. Everything
here is for the I/O thread.

A worker sends at most a window of a job's output before somebody has taken it
(`worker/output`). The client reports how much its streams have taken, so only a slow client
makes a job wait. The output of a client that is gone counts as taken; it is then in the worker's
log only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridengine.dispatcher.core.state import CoreState
from gridengine.dispatcher.serving.client_process import Send
from gridengine.serialize.payload import Payload, size_of
from gridengine.wire.messages import Output, OutputTaken

if TYPE_CHECKING:
    from gridengine.dispatcher.serving.remote_client import RemoteClient


class ClientsOutput:
    """Passes the output of jobs to their clients, and tells the workers how much was taken.

    Args:
        state: the core's, only read.
        send: sends a worker a message.
    """

    def __init__(self, state: CoreState, send: Send) -> None:
        self._state = state
        self._send = send
        self._clients: dict[int, RemoteClient] = {}
        self._under_way: dict[RemoteClient, dict[int, tuple[bytes, int]]] = {}
        """For each client and run: the run's worker, and how many bytes the client has not taken.
        """
        self._waiting: dict[RemoteClient, list[tuple[Output, Payload]]] = {}
        """Output for clients that were connected to the previous process and have not come back
        yet.
        """

    def add(self, client: RemoteClient) -> None:
        """Add a client that is connected, or that was connected to the previous process and may
        come back.
        """
        self._clients[client.number] = client

    def resume(self, client: RemoteClient) -> None:
        """Send a client that has come back the output that waits for it."""
        for message, buffers in self._waiting.pop(client, ()):
            client.send(message, buffers)

    def remove(self, client: RemoteClient) -> None:
        """Forget a client. Its output counts as taken."""
        if self._clients.get(client.number) is client:
            del self._clients[client.number]
        self._waiting.pop(client, None)
        for run, (worker, count) in self._under_way.pop(client, {}).items():
            self._send(worker, OutputTaken(count, run), ())

    def pass_on(self, worker: bytes, message: Output, buffers: Payload) -> None:
        """Send output of a run to its client. If a call submitted the job, this is the client of
        that call.
        """
        run = self._state.runs.get(message.run)
        client = None
        if run is not None:
            client = self._clients.get(run.span.open_task.submitter.client.number)
        count = size_of(buffers)
        if client is None:
            self._send(worker, OutputTaken(count, message.run), ())
            return
        under_way = self._under_way.setdefault(client, {})
        under_way[message.run] = worker, under_way.get(message.run, (worker, 0))[1] + count
        if client.connected:
            client.send(message, buffers)
        else:
            self._waiting.setdefault(client, []).append((message, buffers))

    def taken(self, client: RemoteClient, message: OutputTaken) -> None:
        """Tell a worker how much of a run's output a client has taken. Ignore runs that this
        process has sent no output of: the client answers the previous process.
        """
        under_way = self._under_way.get(client, {})
        if message.run in under_way:
            worker, left = under_way.pop(message.run)
            if left > message.size:
                under_way[message.run] = worker, left - message.size
            self._send(worker, OutputTaken(min(left, message.size), message.run), ())
