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
