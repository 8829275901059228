"""The public functions and classes: `map` and its kin, `Executor`, `Pool`, `Job`, `JobDispatcher`,
`share`, `delayed`, `run`, `Client`, and `Actor`, which `Scheduler.actor` makes.

    map, imap, aimap --------> client.submission --+
    Executor, Pool, dask_get -> client.submitter --+--> a dispatcher --> workers
    Job ----------------------> job_result --------+
    Actor --------------------> client.actor_calls-+
    results in order, as they come, or the caller's own exceptions  <--+

Each class or function is a thin layer over `client`, which turns calls into tasks and outcomes back
into values. Read `map` first, then `map_results`. A `Job` is in `job` (its API), `job_target` (the
part that runs on a worker) and `job_result` (the host's side: its handle, and its results).

The options of calls stand in one table (`client.keywords_and_arguments`, `CallKeywords`), and `map`
documents them. Functions that take them have `**keywords: Unpack[...]` for type checkers; the
decorator `takes` writes the options out in the signature that `inspect` and `help` show.

`seed` is an option of numbered calls alone (`SeededKeywords`): not of jobs and graphs.

Keep in step: `CallKeywords`, its twin `CallChanges` (where None is allowed), and the fields of
`CallOptions`, which checks the values; and `gridengine/__init__.py`, which lists public names
twice, for type checkers and for the interpreter (tests compare the lists: one list would cost
either quick imports or typed ones).

Rejected:

- Importing everything before a local worker starts. The worker's process imports for as long as the
  caller does, so both import at the same time, which saves a third of the time to a first result.
  Therefore `map` imports next to nothing. A map that then fails, or is empty, has started a process
  in vain; the next map uses this process, or it ends with the scheduler. Only `map` and its kin
  start a process early: with an `Executor`, the script may still change the environment that the
  process would get. A process that started early is not used if the environment has changed.
- A thread that draws the bar of a map. The thread that waits for the map draws it. An executor has
  a thread (`SubmitterProgress`) as long as calls are open: its users wait by `concurrent.futures`,
  or not at all. Calls are counted where their futures are settled, under a lock that is held there
  anyway; where no progress is wanted nothing is counted.
- Progress in a log after two seconds, as on a terminal. Piped output is often read by programs, and
  short maps have nothing to report; so the first line comes after ten seconds.
- A map's error itself among its `results`. Then all results would wait for the garbage collector;
  `results` holds a copy.
- `WorkerCrashed` as a subclass of `BrokenProcessPool`. Code that catches the latter makes a new
  executor, although ours goes on.
"""
