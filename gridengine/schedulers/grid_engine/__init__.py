"""Workers on a Grid Engine, or another batch system that has a DRMAA library.

In: a demand (`resources.demand`) and the arguments of a `GridEngineScheduler`. Out: handles of
submitted tasks, and reports on them (`schedulers.launcher`). Read `launcher` first. A DRMAA library
is loaded by a process of its own alone: `drmaa` is our side of it, `drmaa_process` the other.
"""
