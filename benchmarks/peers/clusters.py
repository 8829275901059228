"""What else runs calls on a batch system. Each is imported where it is made: they have
little in common.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.peers.base import Call, Peer

MEMORY = "1GB"


class ArrayJob(Peer):
    """A plain array job of `/bin/true`, one task for each call; nothing comes back but its end."""

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        command = [
            "qsub",
            "-t",
            f"1-{len(xs)}",
            "-sync",
            "y",
            "-b",
            "y",
            "-cwd",
            "-o",
            "/dev/null",
            "-j",
            "y",
            "/bin/true",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return list(xs)


class DaskJobqueue(Peer):
    kind = "SGECluster"

    def __init__(self, workers: int) -> None:
        import dask_jobqueue
        from distributed import Client

        super().__init__(workers)
        prologue = [f"export PYTHONPATH={os.environ['PYTHONPATH']}"]
        options = {
            "python": sys.executable,
            "job_script_prologue": prologue,
            "scheduler_options": {"dashboard_address": None},
        }
        make = getattr(dask_jobqueue, self.kind)
        self.cluster = make(
            n_workers=workers, cores=1, processes=1, memory=MEMORY, walltime="00:10:00", **options
        )
        self.client = Client(self.cluster)

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return list(self.client.gather(self.client.map(f, xs, pure=False)))

    def close(self) -> None:
        self.client.close()
        self.cluster.close()


class Gridmap(Peer):
    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        import zmq  # noqa: F401 - loaded after the DRMAA library, it ends the process
        import gridmap  # isort: skip

        return list(
            gridmap.grid_map(
                f,
                [[x] for x in xs],
                quiet=True,
                require_cluster=True,
                temp_dir=os.environ["HOME"],
                queue="all.q",
            )
        )


class DaskOnSlurm(DaskJobqueue):
    kind = "SLURMCluster"


class SlurmArray(Peer):
    """A plain array job of `/bin/true`, one task for each call; nothing comes back but its end."""

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        options = [f"--array=1-{len(xs)}", "--wait", "--mem=500M", "--output=/dev/null", "--quiet"]
        subprocess.run(
            ["sbatch", *options, "--wrap", "/bin/true"], check=True, stdout=subprocess.DEVNULL
        )
        return list(xs)


class CondorJobs(Peer):
    """Jobs of one cluster that run `/bin/true`; nothing comes back but their end, in a log."""

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        log = os.environ["TMPDIR"] + "/noops.log"
        settings = ["executable=/bin/true", "should_transfer_files=NO", f"log={log}"]
        command = ["condor_submit", *settings, "/dev/null", "-queue", str(len(xs))]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["condor_wait", log], check=True, stdout=subprocess.DEVNULL)
        return list(xs)


class OARArray(Peer):
    """An array job of `/bin/true`; nothing comes back but its end, which is asked for."""

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        logs = ["--stdout=/dev/null", "--stderr=/dev/null", f"--directory={os.environ['TMPDIR']}"]
        name = f"noops-{os.getpid()}"
        command = ["oarsub", f"--array={len(xs)}", f"--name={name}", *logs, "/bin/true"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        left = f"job_name = '{name}' AND state NOT IN ('Terminated', 'Error')"
        while subprocess.check_output(["oarstat", "--json", "--sql", left]).strip():
            time.sleep(0.1)
        return list(xs)


class Submitit(Peer):
    """One array task for each call, its results in files that the folder shares."""

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        import submitit

        executor = submitit.AutoExecutor(folder=os.environ["TMPDIR"] + "/submitit", cluster="slurm")
        executor.update_parameters(slurm_array_parallelism=self.workers, mem_gb=0.5, timeout_min=10)
        return [job.result() for job in executor.map_array(f, xs)]


class Executorlib(Peer):
    """Its workers are steps that `srun` starts, one for each call."""

    stays = False
    """Whether workers stay for the calls that follow."""

    def __init__(self, workers: int) -> None:
        from executorlib import SlurmJobExecutor

        super().__init__(workers)
        resources = {"slurm_cmd_args": ["--mem=500M", "--immediate=0"]}
        self.executor = SlurmJobExecutor(
            max_cores=workers, resource_dict=resources, block_allocation=self.stays
        )

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return self.gather([self.executor.submit(f, x) for x in xs])

    def close(self) -> None:
        self.executor.shutdown()


class ExecutorlibBlock(Executorlib):
    """Its workers are steps that `srun` starts, one for each worker."""

    stays = True
