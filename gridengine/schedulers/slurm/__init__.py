"""Workers on a Slurm, by its own commands.

In: a demand, and the options of a `SlurmScheduler`. Out: handles of cluster tasks, and reports on
them. `commands` and `answers` are pure: how commands are called, and what their output means.
`srun` starts the first workers at once, `steps` those on the nodes of the script's own job.
"""
