"""A dispatcher in this process: one I/O thread for each scheduler, shared by everybody who uses
that scheduler. It performs the decisions of `core`.

    caller's threads                    the I/O thread                     workers
    posting: submit, cancel, ... --EventQueue--> io_loop --event--> core
                                                   |  <--effects---   |
    Listener.settled <--- effects <----------------'                  |
                             |-- Send ----> links (local or remote) --'--> agents
                             `-- Launch --> launcher_thread --> the scheduler's launcher
                                               `-- Launched, Polled --> EventQueue

Read `interface` first (the methods and events that callers see), then `posting`, `io_loop` and
`effects`; `io_thread` puts the parts together.

- Links to workers (`links`): `local_workers` drives agents in this thread; `remote_workers` has a
  server's socket, and both kinds side by side.
- `serving` is the end of clients in other processes, `standalone` the process of a dispatcher that
  stands alone, `run_directory` the folders.
- Watching: `watch_server` (a Unix socket, and streams for followers), `watch_messages` and
  `watch_answers`; `metrics` and `kept_reports` write files.
- `call_slot` belongs to calls that wait for their nested calls; `nested_encoding` translates
  between the core's structs and messages, for both ends.

State machines:

- The I/O thread: runs; closing (`Closing` was posted and nothing is accepted any more); leaves once
  its workers have, or after `LEAVE_SECONDS`; ended, in order or by a failure.
- A submitted task, in `interface.UnsettledTasks`: added when it is submitted, removed when its last
  call has an outcome. It is counted where outcomes are told, not derived from the core's state,
  because that may be broken just when everything must be failed.
- A `call_slot.CallSlot`: held, given back, asked for, over.

Keep in step:

- `EventQueue.sleeping`: a poster writes to the descriptor only if it is set; the reader sets it
  before it looks at the queue a last time, so that no event is missed.
- `IOLoop._take_events` removes an event only after the core has handled it: if the core fails, the
  submission is still counted.
- Before each wait, `pending` of every ZeroMQ socket is asked: its descriptor signals an edge, not a
  level.
- `LaunchRecord` with the batch system: the launcher is told which jobs are on record. When the
  dispatcher is killed, all other jobs of it are deleted.

Rejected:

- One dispatcher thread for each map. Each would hold workers that another waits for; so all users
  of a scheduler instance share one.
- Calls to the scheduler in the I/O thread. A batch system may take seconds to answer. The launcher
  has a thread of its own, which also satisfies DRMAA: one session in a process, used by one thread.
- A lock on the core's tables for those who watch. The I/O thread publishes an immutable snapshot a
  few times a second, and answers questions itself, between two events.
- Sending followers each event as it happens. Calls may end by the ten thousand in a second;
  followers get a status at intervals with the events since, made once for all who want the same.
- Fetching every result. Large results stay at their workers until the caller asks
  (`effects.KeptPayloads`).
- Workers on a stand-alone dispatcher's own machine that connect over TCP as others do. Calls on
  this machine keep their speed; `remote_workers.MixedWorkers` has both kinds.
"""
