"""What users call: `map` and its kin, `Executor`, `Pool`, `Job`, `JobDispatcher`, `share`.

In: callables and arguments. Out: results, in order or as they come, or the caller's own exceptions.
Each of these is a thin face over `client`, which turns calls into tasks and results back into
values. Read `map` first, then `map_results`. A `Job` is `job` (its API), `job_target` (what of it
runs on a worker) and `job_handle` (what is known of it here while it runs).
"""
