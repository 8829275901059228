"""Dispatchers as callers see them: one interface (`interface.Dispatcher`), and four ways by which
requests reach the core that decides.

    client: tasks, a listener
       |  interface.Dispatcher: submit, cancel, recall, want, supply, ...
       |  each request is a struct, the same for all ways (core.events.Request)
       v
    posting     a script's own I/O thread: the struct is the core's event
    requesting a dispatcher in another process: translation.RequestEncoder makes messages of
       |        requests
       |-- nested   a runner's channel -> agent -> dispatcher
       `-- remote   TCP -> stand-alone dispatcher
    inline      no dispatcher: this thread runs the calls, and the struct acts at once

    outcomes, answers -> UnsettledTasks -> listeners of the tasks

Read `interface` first, then `posting`, which is the shortest way, and `requesting`, which `nested`
and `remote` share. `nested` and `remote` differ in how messages travel, and in when the calls end:
with the call that submitted them, or with the client. `remote_control` has a client's questions
that are not calls. `outstanding` has the requests and outcomes that are not acknowledged yet.

State machines:

- The slot of a call (`interface.CallSlot`): held, given back, asked for, over.
- The connection of a `RemoteDispatcher`: greeting, welcomed, resuming (it has found a restarted
  dispatcher and waits for a welcome; nothing is sent meanwhile), closed, lost. The fields
  `_number`, `_welcomed`, `_resuming`, `_closed` and `_lost` hold this state.
- A request to a dispatcher with a journal, in `outstanding.PendingRequests`: added when it is sent,
  durable when the dispatcher says so. A restarted dispatcher is sent all requests that are not
  durable, without the tasks that have ended.
- An outcome, in `outstanding.TakenOutcomes`: received, then acknowledged, together with others.

Keep in step:

- `PendingRequests` and the dispatcher's `ClientRecord.seen` count the same messages (`JOURNALED`).
- A question is put into `_questions` before `_lost` is read, and `_fail` sets `_lost` before it
  reads `_questions`. So every question is answered, by one or by the other. The same holds for
  tasks and `_unsettled`.
- The definitions that a `RequestEncoder` takes for sent, and the definitions that the dispatcher's
  end has of this client. Therefore one thread at a time encodes requests, in the order in which
  they are sent.

Rejected:

- A second protocol for clients over TCP. It would repeat every message of nested calls.
- A scheduler for each runner whose calls submit calls, which would multiply workers and submit
  cluster jobs from nodes; and running nested calls in their parent's process, which would use one
  core.
- A lock around sending. The garbage collector may release an object in any thread, even while that
  thread sends; so a request is queued, and whoever is sending sends it too.
- Sending a runner's requests from a thread of its own. A nested call would then wait for a second
  thread to wake.
- Checking a client's limits (`max_calls`, `max_bytes`) at the dispatcher. The error must arise
  where the call is submitted, without a round trip for each call.
- One message for each call. Messages, not tasks, cost the journal and the socket time, so tasks of
  one function that are submitted while the thread is busy travel together
  (`translation.take_joinable`).
- Acknowledging each outcome at once, or with the next message. Both keep the dispatcher and its
  journal busy while the next call is on its way.
- One core for all calls of an `InlineDispatcher`. A call that submits calls would be given the
  other calls of its own submission, and a thread the calls of another thread. So each submission
  has a core of its own, whose one worker is the thread that submits.
- No core for inline calls that need nothing special. Which calls are repeated, and with which error
  they fail, would be decided in a second place.
- Enforcing `timeout` on inline calls by judging them after they have ended. It would protect
  nobody, and would fail calls that are stepped through in a debugger.
"""
