"""Decides which call runs where, when and how often, and on how many workers. It does no I/O.

`StateMachine.handle(event, now)` takes one event and returns the effects to perform, in order. An
event is a request of a client, a message of a worker, a report of the scheduler, or the passing of
time (`events`). An effect is a message to send, a launch to request, or an outcome to tell
(`events`, `requests`). There is no clock, socket, thread, file or pickle here, so a test can play
every failure.

The core promises two things. Each call of each task is settled exactly once, whatever workers do.
And the work for one event does not grow with the number of waiting calls or connected workers.
Cancelling, a tick and the scheduler's reports are exceptions: each looks at everything that it
concerns.

    task --> spans --> run --> outcome        span: consecutive calls of a task that wait
               ^        |                     run: a span that was assigned to a worker
               +--------+  lost, given back   batch: the runs that one runner is given together

**Two state machines.** A *call* is waiting (in a queue), missing (inputs), assigned (in a run) or
settled; `calls.CALL_MOVES` is the table of its moves. The place of a call is its state: a field for
each of a million waiting calls would cost memory, and could disagree with the place. A *worker* has
a `WorkerPhase`; `workers_and_queues.NEXT_PHASES` is the table. Whether calls may begin at a worker
depends on more facts, which change independently: `Worker.closed_because` says it for all calls,
`Worker.floor` by their depth, `CoreState.stays_for` by their time, and the packer asks these three.
Whoever changes such a fact calls `books.reconsider`. One state for each combination was rejected:
thirty states would be no clearer. Runs are numbered, and no number is used again, so the core
recognises an answer to an ended run as late, and drops it. The number of the attempt would not do,
since calls that are given back keep theirs.

**Kept in step.** Counts stand beside the tables, since a walk over all calls for each event is too
slow. `books` is the only module that changes them. `invariants.check` derives each count again from
the tables; a core that is `checked` does so after each event. Where order decides, a dictionary
stands in for a set: effects must not depend on hash values.

**The loop.** A handler changes the tables, and notes in the `state.Agenda` what follows. It does
not act at once: an event with a hundred outcomes assigns calls once, and no loop walks over a table
that another loop changes. Then `handle` works off the agenda, until nothing new comes:

1. `returning`, `orphans`: calls that go on get their slots; children of ended calls are cancelled.
2. `linked`, `begun`: outcomes are passed on to the calls that need them, and these are queued.
3. `freed_slots`, `changed_queues`, `room_freed`: calls are assigned (`allocator.assign_all`).
4. `scale`: workers are requested or withdrawn, once, by the calls that still wait.

Slots go first to calls that have begun (1), then to calls whose inputs have come (2: inputs take
memory), then to other calls (3). So the core finishes work before it begins more.

| who or what | modules |
|---|---|
| the tables | `state`, `calls` (tasks, results), `workers_and_queues` (and runs), `books` |
| clients | `clients`; their limits: `policy` |
| results and functions | `dependencies`, `objects` |
| who runs what, where | `fair_queue`, `assigner`, `allocator` (slots), `nested` |
| how calls end | `outcomes`; what follows a fault: `verdicts` |
| workers | `worker_startup`, `worker_messages`, `worker_lifecycle` |
| the scheduler | `launches`, `provisioner` (of one demand), `scaling` (of all) |

Descriptions of the core are made elsewhere: in `status` (below) and `dispatcher/status_views`
(above).
"""
