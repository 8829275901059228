"""From a user's call to a task, and from bytes back to a result.

    f, arguments, options (api)
      functions: f -> Function, pickled once, known by its digest
      |
      |- map: map_run -> submission ------------.  hand_in: TaskMaker -> Task
      |- single call: future -> batcher         |  (dependencies: futures among the arguments
      |- graph: graph -> executor_submissions   |  -> references)
      `- actor, job: one call each -------------'  HandedTasks._submit -> Dispatcher.submit
                                                         |
    the caller's thread          the I/O thread          v
    outcomes (unpickled) <-- submission's queue <-- HandedTasks.settled <-- CallsFinished
    future.result()      <-- settlement         <--

There is one hand-in (`hand_in`), and three ways to it. Many calls of one function are a
`submission`, which a `map_run` fills and reads. Single calls are a `future` each, gather in the
`batcher`, and travel as a `batch`. A `graph` is read into calls, which are handed over at once,
each with the calls that it waits for. Each of the three is a `HandedTasks`: a table of its tasks
that have not ended, and the listener for their outcomes, which it puts where they belong
(`_take_outcome`): into the queue of a map or into futures. A job and an actor are one task, and
listen for themselves. All have their tasks made by a `TaskMaker`, or by the `CallTemplate` of
single calls that wait: these alone pickle calls, tell the dispatcher of the results that they need,
and number the tasks. (A job is pickled before there is a dispatcher.)

The `submitter` offers all three ways to executors and pools; their maps and graphs
(`executor_submissions`) end with the executor. Read `hand_in` first, then `submission`, then
`batcher`.

An actor is one call, and the calls of its methods are what this call is told (`actor_calls`); their
futures are `CallFuture`s too, which the answers settle.

A named run (`named_run`) stands between each of these and the dispatcher
(`HandedTasks.record_in`). It is asked first which calls have a result: for one call at a time, or
for a part of a map (`named_run_calls`). Then it is told the place of each other call in its file
(`expect`), submits the tasks in the dispatcher's stead, and records their outcomes.

State machines:

- A `CallFuture`: WAITING (not handed over), RUNNING (handed over), CANCELLED, or an outcome:
  `UndecodedResult`, then a value or `Failed`. A recalled call goes from RUNNING back to WAITING.
  The batcher's lock guards each change.
- The `Window` of a batcher: the load that is handed over, and `low`, the load at which more is
  handed over.
- A `Lifetime`: open; closed (no new calls); finished (all calls have ended, and the scheduler is
  closed if it was made here).

Keep in step:

- `Lifetime._open` with the calls that have no outcome; a submission counts as one call.
- `Batcher._sources`, the maps and graphs of an executor that have not ended: cancelling and killing
  go through their tables and the batcher's own.
- A task is in its table before it is handed over, because its outcome may come at once.
- `Window` with the batches in it: a call enters when it is handed over, and leaves when it settles
  or is given back.
- `CallFuture.place` with the batch: it is the task's number times `MOST_CALLS`, plus the index.
- A dispatcher is told of a reference before any task that uses it (`dependencies.introduce`), and
  the reference lives until the task is submitted.

Rejected:

- One task for each single call, which costs 25 microseconds against 2; and a timer that gathers
  calls. A call that finds workers idle is handed over at once, by the thread that submits it. Later
  calls gather and are handed over when earlier ones settle, and can be cancelled without asking
  anybody. How many are handed over follows from how long calls of each function take now; how long
  half the window took would measure the dispatcher too.
- A condition in each future, as the standard library has. Most futures are only asked for their
  result, so `CallFuture` makes a condition when somebody needs one. A condition that futures share
  would deadlock two threads that wait for overlapping sets of futures, because
  `concurrent.futures.wait` takes the locks in the order of the futures' addresses.
- Waking a waiter by a condition. It notifies while its own lock is held, so that the waiter wakes
  and sleeps again. A waiter of one future sleeps on a plain lock instead, which is released last.
- A thread that delivers results. It would cost each single call a switch of threads. The I/O thread
  only marks futures as done, and whoever asks for a result unpickles it. Callbacks are user code,
  and have a thread of their own.
- One table for all tasks of an executor. A map and a graph would look for their own tasks among all
  others, or keep a second record of them.
- The references of a function in its `TaskMaker`. Each future holds its `TaskMaker`, and would keep
  results alive that nobody needs any more.
- The batcher's window for maps of executors. The core shares workers fairly and can recall, so one
  way of sending serves `map`, `imap`, `Executor.map` and `Pool`.
- Counting calls that wait for other calls as load. A window full of them would keep their inputs
  back.
- Numbers of a dispatcher for references. A function is pickled before its scheduler is made, so
  references are numbers of this process.
- Starting threads late. From Python 3.12 on no thread can start once the interpreter ends, and the
  last jobs of a script run at that time.
- Showing a crashed call's arguments at the caller. The worker shows the arguments of a call that
  fails; those of a call that crashed may be what it died of, and are not unpickled here.
- anyio. It has no call that wakes a task from another thread without blocking; asyncio has
  `call_soon_threadsafe`, and trio `run_sync_soon` (`loop_tasks`).
- dask's rule that a string in a task is data unless a key has that name: a slip would be silent
  (`graph`).
- One layer for named runs, as a `Dispatcher` around the real one. Calls are known by
  their arguments, which a dispatcher gets only pickled; a known map would be pickled in vain. And
  references are compared by the dispatcher that they were introduced to.
- Fusing calls of a graph by closures. Functions are pickled once for all calls of the same
  functions, and an error still names its node, because a fused call is a list of steps
  (`call_sequence`).
"""
