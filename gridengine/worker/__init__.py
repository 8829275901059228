"""A worker: the processes that a scheduler starts, which run calls for a dispatcher.

    dispatcher --Assign, Cancel, Define--> agent --fork, signal--> fork server
               <--Results, Crashed-------   |  ^                       | forks, reaps
                                            v  | channel, status block v
                                          runners: the user's functions

- The *agent* holds the connection, and gives batches to runners. Elsewhere it is the main process
  of a cluster job (`main`); on the dispatcher's own machine the I/O thread drives it.
- The *fork server* forks the runners, reaps them, and ends the processes that they leave behind.
- A *runner* calls user code. It may crash, hang, leak or be killed; the worker survives and reports
  it.

Read `agent` first, then `runner_pool` (which runner gets which batch), `runner_messages` (what
follows from a runner's answers and its death) and `runner` (the other end).

State machines:

- A runner, as its agent sees it (`runner_handle`): idle, busy, given a second batch ahead, waiting
  for nested calls, ending (signalled; killed at a deadline), dead. The fields `given`, `ahead`,
  `waits_in`, `ending` and `dead` hold this state.
- A run at a worker: queued (`BatchQueue`), in a runner's `backlog`, given, begun, answered in
  part, ended. Only runs that have not begun can be taken back.
- The status block (`status_block`): words of shared memory, each with one writer, by which agent
  and runner agree without a lock whether a call may begin.

Keep in step:

- `RunnerHandle.given` with the runs that the runner has been sent and has not ended; `ahead` is a
  part of it.
- `HeldRuns` with everything that was sent and is not acknowledged: a restarted dispatcher is told
  exactly this.
- A runner's `defined` with the definitions that its `LoadedFunctions` has.

Start: on its own machine a caller starts the fork server first (`schedulers/local`), and imports
messages, client and dispatcher while the fork server imports `runner`. Both take as long, so the
first result comes at the end of the longer of two paths:

    caller       import gridengine, map | import client, dispatcher | agent, Assign
    fork server                         | import runner             | fork -> runner: first call

What the caller imports up to the bar delays both. Hence no messages and no msgspec there. In the
fork server each module delays the first result and takes memory in each runner, hence none that
only some calls need: `logging`, `pathlib`, OpenSSL (`hashlib`). Neither process looks for garbage
while it imports. `tests/integration/worker/test_start.py` counts the modules of each.

Elsewhere the main process imports the agent's modules and forks the fork server. Then the main
process imports ZeroMQ and connects, while the fork server imports what calls need. Hence the
agent's modules import nothing that only calls, clients or messages to people need.

Rejected:

- Forking the fork server from the caller, which would save the start of an interpreter. Calls would
  find the caller's modules in the state that the caller has left them in, its open files and, where
  it has threads, their locks.
- Forking a first runner before the dispatcher asks for one. It saves 2 of 90 ms, and an agent would
  have to exist before its fork server has shown that it can start.
- Forking runners from the agent. Forking a process with ZeroMQ's threads is not safe; so the fork
  server is forked first, before the worker has a socket or thread. Starting each runner afresh
  would cost tens of milliseconds more.
- An agent of its own on the dispatcher's machine, behind a Unix socket. It cost each call two more
  hops, and left a folder, a socket and a file to guard.
- Moving a runner between processors by `sched_setaffinity`. Libraries of linear algebra read the
  number of threads once, when they are loaded; so a runner serves one allocation's processors for
  its life, and an idle one ends when its place is wanted for another.
- Lock files to claim processors where no batch system binds a worker. A name in the abstract
  namespace belongs to one process at a time, and the kernel frees it at any death.
- RLIMIT_AS for a call's memory limit: it counts reserved address space, of which linear algebra
  takes gigabytes that it never touches. RLIMIT_RSS does nothing on Linux, and a control group needs
  rights. RLIMIT_DATA raises `MemoryError` at the line that asks for too much, in most code. It is
  set and lifted for each run, two system calls. A runner that has hit it is replaced, because the
  growth of its heap would be missing for the next call.
- Letting a call that is over its time come back. Whether it fails would depend on how fast it
  tidies up on SIGTERM. The agent writes down which call it found late before it sends the signal.
- Ending a runner as a script ends. Tearing its modules down takes 40 ms with NumPy and 230 ms with
  scikit-learn, and the results are out. So a runner calls its exit handlers and leaves by
  `os._exit`. A worker that is closed waits for that only where the status block says that handlers
  are registered; other runners are killed.
- Killing what calls leave running at once. joblib's processes keep files in shared memory that
  somebody must remove, so each gets SIGTERM and a second.
- Looking at the clock, and at whether the rest of the run was taken back, after each call: it takes
  as long as a call that does nothing. Quick calls are made in strides (`call_strides`), and a
  backstop thread sends results that wait for 10 ms. A call that turns out to take long must not
  keep others behind it; hence that thread also ends the stride in progress.
- Noting each call by its place in the stride, in half a word, the other half being the stride's
  first call: Python has small numbers ready. A loop that does nothing else takes 54 ns a call for
  68, but a loop of maps only 0.96 of its processor time, and each reader adds two halves. An
  iterator of C whose position lies in shared memory would take 35 ns. There is none but by putting
  an object of CPython's there by hand.
- Noting the number of the stride alone, not of each call, which would save 20 ns a call. Of a dead
  process nobody could say which call it was in; to find out, calls would have to be made again.
- Looking at time limits at each message, which costs more than the message. An agent looks up to
  10 ms late.
- Counting an executor's `max_tasks_per_child` in the agent. A process that has made its calls ends
  by itself; its remaining calls go back uncharged, and the loop over calls needs no change.
- For calls with `retries=0`: results in shared memory that the agent reads after a death. Instead,
  each result is sent before the next call begins, which costs other calls nothing. Where nobody can
  say whether a call had begun, it fails, because `retries=0` means "at most once". A worker that
  leaves says which calls had begun; the core guesses only where it does not.
- Watching modules by a function's references. All own modules are watched, which is cheaper and
  covers arguments. A change replaces runners, not workers: a fork takes milliseconds, a cluster job
  a round of the queue. Modules are not part of a function's digest: each edit would send its data
  again.
- Resetting variables that calls set, for calls of a map: libraries set variables at their first
  import, which happens once in a process. A job, which shares its process with nobody, finds its
  caller's.
- `multiprocessing`'s things at the start of each runner. A runner asks for the resource tracker,
  the authentication key and open files when user code wants them; `multiprocessing`'s own way of
  sending a descriptor hands it out once, and retries need it several times.
- Dataclasses in modules that load before the first call: making one takes as long as importing a
  small module. They are plain classes and named tuples, or msgspec structs where loaded later.
"""
