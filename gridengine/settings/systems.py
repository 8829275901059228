"""The batch systems, an entry each: the facts that are needed before its class may be imported.

Everything else about a system stands in its class, which `schedulers/registry` finds; a test holds
the two together. Kept import-light: start-up, settings and workers read this.
"""

from __future__ import annotations

from typing import NamedTuple


class BatchSystem(NamedTuple):
    """One batch system.

    Attributes:
        name: as in `scheduler="slurm"`, on the command line and in the settings, where it names the
            table of the site's own names.
        title: its name for people.
        path: the class of its scheduler, such as "module:Class" in `gridengine.schedulers`.
        command: the command that submits, by which the system is detected; empty if it is used by
            DRMAA.
        variables: a regular expression for the names of the variables that its jobs have. They
            never travel to workers.
        job: variables that each of its jobs has; the first is the job's id.
        hosts: the variable with the job's nodes, or with the path of a file of them: a line for
            each core, or nodes with their numbers of cores.
        cores: variables with the number of cores that a job has on this node, where `hosts` does
            not tell. Without either, they are those that the process is bound to.
        nodes: the variable with the number of nodes, where `hosts` does not tell.
        allocation: the path of the function that reads these variables instead, if they are not
            enough.
        one_node: the request by which a job has a single node, for people.
        of_mpirun: variables in which mpirun looks for its hosts. It refuses other hosts then.
        inside: a variable that says that this process is to use this system: it comes first then.
    """

    name: str
    title: str
    path: str
    command: str
    variables: str
    job: tuple[str, ...]
    hosts: str = ""
    cores: tuple[str, ...] = ()
    nodes: str = ""
    allocation: str = "allocation:of_variables"
    one_node: str = "one node"
    of_mpirun: tuple[str, ...] = ()
    inside: str = ""


SYSTEMS = (
    BatchSystem(
        *("grid_engine", "Grid Engine", "grid_engine.scheduler:GridEngineScheduler", ""),
        "SGE_.*|JOB_(ID|NAME|SCRIPT)|N(SLOTS|HOSTS|QUEUES)|PE_HOSTFILE|RESTARTED",
        job=("JOB_ID", "NSLOTS"),
        hosts="PE_HOSTFILE",
        cores=("NSLOTS",),
        one_node="slots of one host (allocation_rule $pe_slots)",
        of_mpirun=("PE_HOSTFILE",),
    ),
    BatchSystem(
        *("slurm", "Slurm", "slurm.scheduler:SlurmScheduler", "sbatch", "SLURMD?_.*"),
        job=("SLURM_JOB_ID", "SLURMD_NODENAME"),
        cores=("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"),
        allocation="slurm.allocation:of_slurm",
        of_mpirun=("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_NODELIST", "SLURM_JOB_NODELIST"),
    ),
    BatchSystem(
        *("htcondor", "HTCondor", "htcondor:HTCondorScheduler", "condor_submit", "_?CONDOR_.*"),
        job=("_CONDOR_SLOT", "_CONDOR_MACHINE_AD"),
        allocation="allocation:of_machine_ad",
    ),
    BatchSystem(
        *("oar", "OAR", "oar:OARScheduler", "oarsub", "OAR_.*"),
        job=("OAR_JOB_ID", "OAR_NODEFILE"),
        hosts="OAR_NODEFILE",
    ),
    BatchSystem(
        *("pbs", "PBS", "pbs:PBSScheduler", "pbs_rstat", "PBS_.*"),
        job=("PBS_JOBID", "PBS_NODEFILE"),
        hosts="PBS_NODEFILE",
        cores=("NCPUS", "PBS_NUM_PPN"),
        of_mpirun=("PBS_JOBID", "PBS_NODEFILE"),
    ),
    BatchSystem(
        *("lsf", "LSF", "lsf:LSFScheduler", "bsub", "LSB_.*|LSF_.*"),
        job=("LSB_JOBID", "LSB_MCPU_HOSTS"),
        hosts="LSB_MCPU_HOSTS",
        of_mpirun=("LSB_JOBID", "LSB_MCPU_HOSTS"),
    ),
    BatchSystem(
        *("flux", "Flux", "flux:FluxScheduler", "flux", "FLUX_.*"),
        job=("FLUX_JOB_ID", "FLUX_JOB_NNODES"),
        nodes="FLUX_JOB_NNODES",
        inside="FLUX_URI",
    ),
)
"""All of them, in the order of preference."""
