"""A dispatcher in this process: one I/O thread for each scheduler, shared by everybody who uses
that scheduler. It performs the decisions of `core`.

    caller's threads                    the I/O thread                     workers
    calls.posting: submit, ... --EventQueue--> io_loop.IOLoop --event--> core
                                                  |   ^--effects---------'
    Listener.settled <--- io_loop.EffectPerformer <'
                             |-- Send ----> links (local or remote) --> agents
                             `-- Launch --> launcher_thread --> the scheduler's launcher
                                               `-- Launched, Polled --> EventQueue

Read `io_loop` first, then `unsettled` (the tasks without outcomes, and who is told of them);
`io_thread` puts the parts together. Callers' ends are in the room `calls`.

- `worker_links` has the interface of links to workers, and the link to agents in this thread;
  `remote_workers` has a server's socket, alone and beside agents in this thread; `started_ahead`
  starts a worker elsewhere before this room is imported.
- `serving` is the end of clients in other processes, `standalone` the process of a dispatcher that
  stands alone, `run_directory` the folders.
- Watching: `watch_server` (a Unix socket, and streams for followers), `watch_messages` and
  `watch_answers`; `metrics_file` and `run_reports` (of runs that have ended) write files.
- `thread_queues` has the two ways in which threads wait for work: a queue of events beside
  descriptors, and a queue of functions.

State machines:

- The I/O thread: runs; closing (`Closing` was posted and nothing is accepted any more); leaves once
  its workers have, or after `LEAVE_SECONDS`; ended, in order or by a failure.
- A submitted task, in `unsettled.UnsettledTasks`: added when it is submitted, removed when its last
  call has an outcome. It is counted where outcomes are told, not derived from the core's state,
  because that may be broken just when everything must be failed.

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
- Fetching every result. Large results stay at their workers until the caller asks
  (`io_loop.PayloadsAtWorkers`).

`docs/decisions.md` has why followers get a status at intervals, and why workers on a stand-alone
dispatcher's own machine do not connect over TCP.
"""
