"""Workers on a Slurm, through its own commands: srun for the first, array jobs for the others.

In: a demand (`resources.demand`) and the options of a `SlurmScheduler`. Out: handles of submitted
tasks, and reports on them (`schedulers.launcher`). Read `launcher` first; `options`, `site` and
`states` are pure functions, `commands` and `srun` call out.
"""
