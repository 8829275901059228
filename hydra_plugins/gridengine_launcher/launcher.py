"""Hydra's launcher on gridengine's schedulers. Each job of a multirun is one call.

Hydra finds this module by its place below `hydra_plugins`, and imports it at each start. Hence
gridengine is imported when the first jobs are launched.

Annotations are evaluated, unlike elsewhere: Hydra executes a plugin's module before it enters it in
`sys.modules`, where `dataclass` looks for the names of annotations that are strings.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import (
    JobReturn,
    JobStatus,
    configure_log,
    filter_overrides,
    run_job,
    setup_globals,
)
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

if TYPE_CHECKING:
    from gridengine import Resource
    from gridengine.schedulers import Scheduler

log = logging.getLogger(__name__)


@dataclass
class GridEngineLauncherConf:
    """The group `hydra/launcher=gridengine`; its fields are the arguments of the launcher."""

    _target_: str = f"{__name__}.GridEngineLauncher"
    scheduler: str | None = None
    options: Any = None  # a dictionary here would take only the keys that it has
    cores: int | None = None
    memory: float | None = None
    gpus: int | None = None
    time: str | None = None
    retries: int = 2
    timeout: float | None = None


ConfigStore.instance().store(
    group="hydra/launcher", name="gridengine", node=GridEngineLauncherConf, provider="gridengine"
)


class GridEngineLauncher(Launcher):
    """Runs the jobs of a multirun as calls of one map.

    Args:
        scheduler: the name of the scheduler, as "slurm" (default: that of `gridengine.map`).
        options: the scheduler's own arguments, as `{partition: main}`. They want a `scheduler`.
        cores, memory, gpus, time: what each job requests: cores, gigabytes, GPUs, and how long it
            may take, as "2:00:00".
        retries: how often a job runs again whose process died.
        timeout: seconds after which a job is ended.
    """

    def __init__(
        self,
        scheduler: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        cores: int | None = None,
        memory: float | None = None,
        gpus: int | None = None,
        time: str | None = None,
        retries: int = 2,
        timeout: float | None = None,
    ) -> None:
        self._scheduler, self._options = scheduler, dict(options or {})
        self._requests = {"Cores": cores, "Memory": memory, "GPUs": gpus, "WTime": time}
        self._retries, self._timeout = retries, timeout

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what Hydra hands over before the first launch."""
        self._context, self._task, self._config = hydra_context, task_function, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run these jobs, and return how each ended, in order. A job whose process died or that ran
        over its time has failed with the error of `gridengine.map`.

        Raises:
            ConfigurationError: an argument of this launcher is not what it must be.
        """
        import gridengine

        setup_globals()
        configure_log(self._config.hydra.hydra_logging, self._config.hydra.verbose)
        Path(str(self._config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        scheduler = self._make_scheduler()
        log.info("Launching %d jobs with gridengine", len(job_overrides))
        jobs = [
            self._job(number, overrides)
            for number, overrides in enumerate(job_overrides, initial_job_idx)
        ]
        try:
            ended = gridengine.starmap(
                run_one,
                [(self._context, self._task, job, Singleton.get_state()) for job in jobs],
                scheduler=scheduler,
                reraise=False,
                resources=self._resources(),
                retries=self._retries,
                timeout=self._timeout,
            )
        finally:
            if scheduler is not None:
                scheduler.close()
        return [
            failed(job, one) if isinstance(one, BaseException) else one
            for job, one in zip(jobs, ended, strict=True)
        ]

    def _job(self, number: int, overrides: Sequence[str]) -> DictConfig:
        """Return the configuration of one job."""
        log.info("\t#%d : %s", number, " ".join(filter_overrides(overrides)))
        job = self._context.config_loader.load_sweep_config(self._config, list(overrides))
        with open_dict(job):
            job.hydra.job.id = f"{job.hydra.job.name}_{number}"
            job.hydra.job.num = number
        return job

    def _make_scheduler(self) -> "Scheduler | None":
        from gridengine.errors import ConfigurationError
        from gridengine.schedulers.registry import entry_of

        if self._scheduler is not None:
            return entry_of(self._scheduler).make(**self._options)
        if self._options:
            raise ConfigurationError(
                f"hydra.launcher.options={self._options} without hydra.launcher.scheduler",
                hint="name the scheduler that takes them, as hydra.launcher.scheduler=slurm",
            )
        return None

    def _resources(self) -> "Resource":
        import gridengine

        wanted = gridengine.ZERO
        for kind, amount in self._requests.items():
            if amount is not None:
                wanted &= getattr(gridengine, kind)(amount)
        return wanted


def run_one(
    context: HydraContext, task: TaskFunction, job: DictConfig, state: dict[Any, Any]
) -> JobReturn:
    """Run one job, in a worker: with the resolvers and global objects that Hydra has here."""
    setup_globals()
    Singleton.set_state(state)
    return run_job(
        hydra_context=context,
        task_function=task,
        config=job,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def failed(job: DictConfig, error: BaseException) -> JobReturn:
    """Return the end of a job that could not end by itself."""
    return JobReturn(
        overrides=list(job.hydra.overrides.task),
        cfg=job,
        hydra_cfg=job,
        task_name=job.hydra.job.name,
        status=JobStatus.FAILED,
        _return_value=error,
    )
