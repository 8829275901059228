"""The ways by which callers reach a dispatcher that has no thread in their own process.

    client: tasks, a listener
       |  dispatcher.interface.Dispatcher: submit, cancel, recall, want, supply, ...
       v
    requesting ----request----> nested: a runner's channel -> agent -> dispatcher
       ^                 `----> remote: TCP -> stand-alone dispatcher
       `--outcomes, answers---- the thread that reads -> listeners of the tasks

    inline: no dispatcher; the calls run in the caller's thread (inline_run)

Read `requesting` first, which `nested` and `remote` share. They differ in how messages travel, and
in what ends the calls: the end of the call that submitted them, or the end of the client.

State machines:

- The connection of a `RemoteDispatcher`: greeting, welcomed, resuming (it has found a restarted
  dispatcher and waits for a welcome; nothing is sent meanwhile), closed, lost. The fields
  `_number`, `_welcomed`, `_resuming`, `_closed` and `_lost` hold this state.
- A request to a dispatcher with a journal, in `request_sender.PendingRequests`: added when it is
  sent, durable when the dispatcher says so. A restarted dispatcher is sent all requests that are
  not durable, without the tasks that have ended.
- An outcome, in `left_outcomes`: received, then acknowledged, together with others.

Keep in step:

- `PendingRequests` and the dispatcher's `ClientRecord.seen` count the same messages (`JOURNALED`).
- A question is put into `_questions` before `_lost` is read, and `_fail` sets `_lost` before it
  reads `_questions`. So every question is answered, by one or by the other. The same holds for
  tasks and `_unsettled`.
- `_functions` and `_shared` with what the dispatcher's end has of this client.

Rejected:

- A second protocol for clients over TCP. It would say everything once more that nested calls say.
- A scheduler for each runner whose calls submit calls, which would multiply workers and submit
  cluster jobs from nodes; and running nested calls in their parent's process, which would use one
  core.
- A lock around sending. The garbage collector may release an object in any thread, even while that
  thread sends; so `_ask` queues the message, and whoever is sending sends it too.
- Checking a client's limits (`max_calls`, `max_bytes`) at the dispatcher. The error must arise
  where the call is submitted, without a round trip for each call.
- One message for each call. Messages, not tasks, cost the journal and the socket time, so tasks of
  one function that are submitted while the thread is busy travel together (`take_joinable`).
- Acknowledging each outcome at once, or with the next message. Both keep the dispatcher and its
  journal busy while the next call is on its way.
- Enforcing `timeout` on inline calls by judging them after they have ended. It would protect
  nobody, and would fail calls that are stepped through in a debugger.
"""
