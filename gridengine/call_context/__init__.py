"""What a process knows of the call that it is in, and what code in calls may ask for.

A process is in a call when it is a runner, or when it makes calls itself (`InlineScheduler`). All
other processes, such as a user's script, have the same modules, and get the answers that hold
outside of calls. This room starts no process and knows no dispatcher.

| what | modules |
|---|---|
| which call this is, in which runner | `current_call`, `status_block` |
| what a call finds of its caller's process | `environment`, `carried_state` |
| which processors, GPUs and memory the process may use | `process_resources` |
| how a coroutine function is called | `coroutines`, `event_loop` |
| random numbers that follow from a seed | `random_streams` |
| calls that outlive their worker | `checkpoints` |
| objects that live in a call | `actors` |
| the arguments of a call, for people | `shown_arguments` |

Read `current_call` first. Both ends of a call import this room: the caller takes the state that its
calls are to find (`environment`), and the runner sets it.
"""

BEGAN = "GRIDENGINE_JOB_BEGAN"
"""The environment variable that holds the start time of a worker's cluster job, in seconds of
/proc/uptime.
"""
JOB_END = "GRIDENGINE_JOB_END"
"""The environment variable with the command that ends a worker's own job. It is set where the job
would go on after a worker that leaves because its dispatcher is gone.
"""
SCRATCH, LOG = "GRIDENGINE_JOB_SCRATCH", "GRIDENGINE_JOB_LOG"
"""Environment variables of a worker that shares no files with its caller. The first is the
folder in which its calls run, and from which they import. The second is the end of the path that
its log has at the caller's.
"""
KEPT, EXPORTED = "GRIDENGINE_JOB_KEPT", "GRIDENGINE_JOB_EXPORTED"
"""Two environment variables with names of variables, joined by "=". The first lists variables that
the launch script set for calls; the second lists variables that the submitting process had.
"""
SITE = "*"
"""As the value of `GRIDENGINE_JOB_KEPT`: calls get none of the caller's environment variables."""
