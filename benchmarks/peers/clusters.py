"""What else runs calls on a Grid Engine. Each is imported where it is made: they have little in common."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.peers.base import Call, Peer


class ArrayJob(Peer):
    """A plain array job of `/bin/true`, one task for each call; nothing comes back but its end."""

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        command = ["qsub", "-t", f"1-{len(xs)}", "-sync", "y", "-b", "y", "-cwd", "-o", "/dev/null", "-j", "y", "/bin/true"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return list(xs)


class DaskJobqueue(Peer):
    def __init__(self, workers: int) -> None:
        from dask_jobqueue import SGECluster
        from distributed import Client

        super().__init__(workers)
        prologue = [f"export PYTHONPATH={os.environ['PYTHONPATH']}"]
        options = {"python": sys.executable, "job_script_prologue": prologue, "scheduler_options": {"dashboard_address": None}}
        self.cluster = SGECluster(n_workers=workers, cores=1, processes=1, memory="1GB", walltime="00:10:00", **options)
        self.client = Client(self.cluster)

    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        return list(self.client.gather(self.client.map(f, xs, pure=False)))

    def close(self) -> None:
        self.client.close()
        self.cluster.close()


class Gridmap(Peer):
    def map(self, f: Call, xs: Sequence[object]) -> list[object]:
        import gridmap

        return list(gridmap.grid_map(f, [[x] for x in xs], quiet=True, require_cluster=True, temp_dir=os.environ["HOME"], queue="all.q"))
