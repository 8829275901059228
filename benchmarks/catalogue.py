"""The peers by name, and what has to be known of them before they are imported."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

OURS = "gridengine"
INSTALLED, ONE_FILE = "gridengine, installed", "gridengine in one file"
ONE_THREAD = (("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1"))
"""What dask.distributed sets for its workers, and this package for calls that ask for a core: else
each has as many threads as there are cores.
"""
DRMAA_LIBRARY = "/usr/lib/gridengine-drmaa/lib/libdrmaa.so.1.0"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a peer's class is, and whose version is to be told. A slow one makes only one of
    `share` calls.

    One that is `apart` has an environment of its own, beside the others': what it pins does not fit
    with what they want.
    """

    place: str
    distribution: str = ""
    share: int = 1
    environment: tuple[tuple[str, str], ...] = ()
    apart: bool = False

    @property
    def prefix(self) -> Path:
        """The environment that it is installed in."""
        return Path(f"{sys.prefix}-{self.distribution}" if self.apart else sys.prefix)

    @property
    def python(self) -> str:
        """The interpreter that runs it."""
        return str(self.prefix / "bin" / "python") if self.apart else sys.executable


ON_THIS_MACHINE = {
    "gridengine": Entry("ours:Ours", "gridengine"),
    "gridengine.Pool": Entry("ours:OurPool", "gridengine"),
    "multiprocessing.Pool": Entry("pool:Pool"),
    "ProcessPoolExecutor": Entry("futures:Futures"),
    "loky": Entry("lokys:Loky", "loky"),
    "joblib": Entry("joblibs:Joblib", "joblib"),
    "mpire": Entry("mpires:Mpire", "mpire"),
    "dask.distributed": Entry("dasks:Dask", "distributed", share=10),
    "scaled": Entry("scaleds:Scaled", "scaled", share=10),
    "parsl": Entry("parsls:Parsl", "parsl", share=10),
    "ray": Entry("rays:Ray", "ray", share=10),
}
WITH_ANOTHER_MAP = {
    "gridengine.Executor.map": Entry("ours:OurExecutor", "gridengine"),
    "ProcessPoolExecutor, chunksize=500": Entry("futures:Chunked"),
}
"""Told apart from those above by their `map` alone."""
OF_DASK = {
    "dask, processes": Entry("daskown:DaskProcesses", "dask", environment=ONE_THREAD),
    "dask, threads": Entry("daskown:DaskThreads", "dask", environment=ONE_THREAD),
}
WITH_ANOTHER_GRAPH = {"gridengine, call by call": Entry("ours:OurGraphOfCalls", "gridengine")}
COMMAND_LINES = {
    INSTALLED: Entry("commandlines:CommandLine", "gridengine"),
    ONE_FILE: Entry("commandlines:OneFile", "gridengine"),
}
WITH_A_NAME = {"gridengine, with a name": Entry("ours:OurNamedRun", "gridengine")}
BY_TCP = {"gridengine over TCP": Entry("overtcp:OverTCP", "gridengine")}
"""Here, but as on a cluster; where batch systems are asked for workers, their own time is in the
figure.
"""
ON_GRID_ENGINE = {
    "gridengine on Grid Engine": Entry("ours:OnGridEngine", "gridengine"),
    "qsub -t ... -sync y": Entry("clusters:ArrayJob", share=10),
    "dask-jobqueue": Entry("clusters:DaskJobqueue", "dask-jobqueue", share=10),
    "parsl on Grid Engine": Entry("parsls:ParslOnGridEngine", "parsl"),
    "gridmap": Entry(
        "clusters:Gridmap",
        "gridmap",
        # Its plots are for mails; matplotlib, loaded after the DRMAA library, ends the process.
        environment=(
            ("CREATE_PLOTS", "False"),
            ("SEND_ERROR_MAIL", "False"),
            ("DRMAA_LIBRARY_PATH", DRMAA_LIBRARY),
            ("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=8192"),
        ),
    ),
}
OVER_TCP = ("gridengine on Grid Engine", "dask-jobqueue")
"""Whose workers, once they are there, can be given more than the calls they were started for."""
ON_SLURM = {
    "gridengine on Slurm": Entry("ours:OnSlurm", "gridengine"),
    "sbatch --array --wait": Entry("clusters:SlurmArray"),
    "submitit": Entry("clusters:Submitit", "submitit"),
    "executorlib": Entry("clusters:Executorlib", "executorlib", apart=True),
    "executorlib, block allocation": Entry("clusters:ExecutorlibBlock", "executorlib", apart=True),
    "dask-jobqueue on Slurm": Entry("clusters:DaskOnSlurm", "dask-jobqueue"),
    "parsl on Slurm": Entry("parsls:ParslOnSlurm", "parsl"),
}
ON_HTCONDOR = {
    "gridengine on HTCondor": Entry("ours:OnHTCondor", "gridengine"),
    "condor_submit ... -queue": Entry("clusters:CondorJobs"),
}
ON_OAR = {
    "gridengine on OAR": Entry("ours:OnOAR", "gridengine"),
    "oarsub --array": Entry("clusters:OARArray"),
}
OTHERS = {
    "serial": Entry("serial:Serial"),
    "Future and argument alone": Entry("serial:FutureAlone"),
}
OVER_A_DISPATCHER = {
    "gridengine.Client": Entry("standalones:OurClient", "gridengine"),
    "ipyparallel": Entry("ipyparallels:Ipyparallel", "ipyparallel", share=10),
}
ENCRYPTED = {"dask.distributed over TLS": Entry("dasks:DaskEncrypted", "distributed", share=10)}
"""As ours always is."""
CLIENTS = ("gridengine.Client", "dask.distributed", "scaled", "ipyparallel")
"""Whose clients talk by TCP to a dispatcher in another process."""
OF_TEN_WORKERS = {
    "gridengine.Client, ten workers": Entry("standalones:OurClientOfTen", "gridengine"),
    "dask.distributed, ten workers": Entry("dasks:DaskOfTen", "distributed", share=10),
    "scaled, ten workers": Entry("scaleds:ScaledOfTen", "scaled", share=10),
}
TEN_WORKERS = tuple(OF_TEN_WORKERS)
OF_MANY_WORKERS = {
    "gridengine.Client, 500 workers": Entry("many:OurFiveHundred", "gridengine"),
    "gridengine.Client, 100 workers": Entry("many:OurHundred", "gridengine"),
    "gridengine.Client, 10 workers": Entry("many:OurMany", "gridengine"),
    "dask.distributed, 500 threads": Entry("dasks:DaskOfThreads", "distributed", share=10),
}
MANY_WORKERS = tuple(OF_MANY_WORKERS)
WITH_A_JOURNAL = (CLIENTS[0],)
OUR_CLIENTS = CLIENTS[0], TEN_WORKERS[0], MANY_WORKERS[0]
ALL = {
    **OTHERS,
    **ON_THIS_MACHINE,
    **WITH_ANOTHER_MAP,
    **WITH_ANOTHER_GRAPH,
    **OF_DASK,
    **BY_TCP,
    **OVER_A_DISPATCHER,
    **ENCRYPTED,
    **OF_TEN_WORKERS,
    **OF_MANY_WORKERS,
    **COMMAND_LINES,
    **WITH_A_NAME,
    **ON_GRID_ENGINE,
    **ON_SLURM,
    **ON_HTCONDOR,
    **ON_OAR,
}
LOCAL = tuple(ON_THIS_MACHINE)
GRAPHS = ("gridengine", *WITH_ANOTHER_GRAPH, "dask.distributed", "scaled", "ray", "parsl")
MAPS = (*LOCAL, *WITH_ANOTHER_MAP)
STANDARD = tuple(name for name, entry in ALL.items() if entry.distribution in ("", OURS))
"""What `make bench-quick` compares: us and the standard library."""
