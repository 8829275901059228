"""Workers on a Slurm, by its own commands.

In: a demand, and the options of a `SlurmScheduler`. Out: handles of cluster tasks, and reports on
them. `commands` and `answers` are pure: the calls of commands, and the meaning of their output.
`srun` starts the first workers at once, `steps` those on the nodes of the script's own job.
"""
