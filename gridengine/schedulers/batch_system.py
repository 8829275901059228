"""The common part of all batch systems: each worker is a task of an array job, which runs a script
from the run directory and writes a log there.

A system with commands is a module of its words (`batch_commands`); one launcher serves them all
(`command_launcher`). Grid Engine has a launcher of its own, by DRMAA.

A cluster task is identified by the path of its log, which the worker reads from its standard output
and sends when it connects: variables with ids, and the forms of ids, differ between systems. Log
names therefore never repeat in a run directory.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from gridengine.arguments import Seconds, flag, whole
from gridengine.display import plural
from gridengine.errors import (
    UNREACHABLE,
    UNSHARED,
    ClusterError,
    ConfigurationError,
    JobDeleted,
    WorkerNotStarted,
)
from gridengine.resources.base import Resource
from gridengine.resources.demand import ANY, Demand
from gridengine.schedulers.base import Scheduler, Transport, chosen_transport
from gridengine.schedulers.batch_words import BatchWords
from gridengine.schedulers.brought_files import NOT_BROUGHT, BroughtFiles, brought_files
from gridengine.schedulers.launcher import (
    BatchSystemError,
    Handle,
    LaunchContext,
    Launcher,
    LaunchPlan,
    Report,
    TryAgain,
)
from gridengine.schedulers.logs import NO_ANSWER, add_log, log_tail
from gridengine.schedulers.requests import EXCLUDE_HOSTS, TooMany, first_match, host_names
from gridengine.schedulers.worker_command import (
    command_words,
    container_words,
    environment_variables,
    in_container,
    job_name,
    launch_script,
    line_of_text,
    python_path,
    shell_lines,
    worker_command,
)
from gridengine.settings.values import settings

if TYPE_CHECKING:
    from inspect import Signature

    from gridengine.schedulers.checks import Finding

logger = logging.getLogger("gridengine")

Task = TypeVar("Task")


MOST_LAUNCHES = 100_000
"""How many launches of one process have numbers of their own."""


CAUSES = {
    "gridengine: the prologue failed": (
        "a line of its prologue failed",
        "run the lines of prologue= by hand in a login shell on that node; the log has what they "
        "wrote",
    ),
    "No module named '?gridengine": (
        "the package gridengine is not there for its Python",
        "install gridengine for the Python on the nodes, or name another by python= or a prologue=",
    ),
    r"exec: [^/\s]+: not found": (
        "its command is not in the PATH there",
        "have a line of prologue= bring it, as 'module load apptainer'; or give its whole path in "
        "container= or python=",
    ),
    "gridengine: the worker could not be started": (
        "its Python could not be run",
        "name a Python by python= that is there on the nodes too, on a shared file system, say; "
        "or, with shared_files=False, a file that is brought to them",
    ),
    f"{NO_ANSWER}: file:": ("it cannot write to the run directory", UNSHARED),
    NO_ANSWER: ("it could not connect", UNREACHABLE),
    "connection.json is not a connection file": ("it cannot read the run directory", UNSHARED),
    NOT_BROUGHT: (
        "the copy failed",
        "the nodes copy them by scp, which may ask for no password; the setting host names this "
        "machine as nodes know it; the batch system's mail to you has the copy's own words",
    ),
}
"""Words in the log of a worker that never connected, or of a job's end: cause and remedy."""


NO_LOG = (
    "it has left no log: the node may not see the log's folder, or a rule of the site (a JSV, "
    "job_submit) sends output elsewhere"
)


def shown_as(scheduler: Scheduler, native: str) -> str:
    """Return an expression that makes a scheduler with the same options."""
    return f"{type(scheduler).__name__}({f'{native=}' if native else ''})"


class _SignatureOfArguments:
    """The signature of a scheduler's class, with the arguments of its batch system. It is made when
    somebody asks: `inspect` takes 3 ms to import.
    """

    def __get__(self, scheduler: object, of: type[BatchScheduler]) -> Signature:
        import inspect

        _, *parameters = inspect.signature(of.__init__).parameters.values()
        if of.__init__ is BatchScheduler.__init__ and of is not BatchScheduler:
            keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
            own = [keyword(name, default=value) for name, value in of._own_arguments.items()]
            parameters = [*own, *parameters]
        return inspect.Signature(parameters)


class BatchScheduler(Scheduler):
    """Settings of workers that a batch system starts.

    Args of every such scheduler:
        native: more options of the batch system, passed on as they are.
        max_workers: the most cluster tasks at a time (default: the setting, 1000).
        min_workers: this many are started at the first use, and stay while they have nothing to do
            (default 0).
        start_timeout: for how many seconds calls may wait for their first worker before they fail
            with `WorkerNotStarted` and the batch system's reason (default: the setting, which is
            for ever).
        jobs_per_worker: after how many calls a cluster task ends (default: never).
        prologue: shell lines that run before the worker, such as "module load python". With a
            prologue the shell is a login shell. If a line fails, the task fails.
        environment: variables for the calls, besides those of their caller; None leaves them the
            variables of the batch system.
        python: the interpreter on the nodes (default: this one; in a container `python`); or the
            words of a command that acts as one, such as `["uv", "run", "python"]`.
        container: an image that workers run in, such as "image.sif": their command is run by
            `apptainer exec --bind RUN_DIRECTORY image.sif`. Or all words of that command, the image
            last: `["apptainer", "exec", "--nv", "image.sif"]`.
        transport: how workers and this process exchange messages: "tcp"; or "files", by files in
            the run directory, where the nodes cannot reach this machine. Files are slower: a call
            takes some tenths of a second longer (default: the setting, "tcp").
        shared_files: whether the nodes see the files of this machine. With False the batch system's
            own transfer brings what a worker needs, and `python` names a Python that nodes have, or
            a file that is brought: "gridengine.pyz", the package in one file, or an archive of an
            environment, "env.tar.gz". HTCondor and PBS alone (default: the setting, True).
        worker_resources: the resources of each worker, such as `Cores(32) & Memory(120)`: calls
            share them, and each worker runs all calls that fit (default: each worker holds the
            resources that one call requests, and runs one call at a time).
        name: the name of the jobs in the batch system (default: that of the function whose calls
            were submitted first, or of the job).
        exclude_hosts: hosts that workers may not run on, besides those of the setting: "n1,n2" or
            `["n1", "n2"]`. PBS has no words for that.

    Raises:
        TypeError, ConfigurationError: an argument has a wrong type or value; the text names it and
            its value.
    """

    local = False
    __signature__ = _SignatureOfArguments()
    _commands: ClassVar[type[BatchWords]]
    """The words of the batch system, and how it is used if it is used by commands."""
    _drmaa_words: ClassVar[type[Any]]
    """The words of requests by DRMAA, made with a title, if they are known."""
    _own_arguments: ClassVar[Mapping[str, object]] = {}
    """The batch system's own arguments, and their defaults, for `inspect.signature`."""

    def __init__(
        self,
        *,
        native: str = "",
        max_workers: int | None = None,
        min_workers: int = 0,
        start_timeout: Seconds | None = None,
        jobs_per_worker: int | None = None,
        prologue: Sequence[str] = (),
        environment: Mapping[str, str] | None = MappingProxyType({}),
        python: str | Sequence[str] | None = None,
        container: str | Sequence[str] | None = None,
        transport: Transport | None = None,
        shared_files: bool | None = None,
        worker_resources: Resource | None = None,
        name: str | None = None,
        exclude_hosts: str | Iterable[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(
            max_workers=settings().max_workers if max_workers is None else max_workers,
            min_workers=min_workers,
            start_timeout=start_timeout,
        )
        self.jobs_per_worker = (
            None if jobs_per_worker is None else whole("jobs_per_worker", jobs_per_worker)
        )
        if worker_resources is not None:
            self._hold(worker_resources)
        self.idle_seconds = settings().idle_seconds
        self.transport = chosen_transport(transport)
        self._prologue = shell_lines("prologue", prologue)
        self._environment = (
            None if environment is None else environment_variables("environment", environment)
        )
        self._name = "" if name is None else line_of_text("name", name)
        self._container = () if container is None else container_words("container", container)
        self.shared_files = (
            settings().shared_files if shared_files is None else flag("shared_files", shared_files)
        )
        self._brought = None if self.shared_files else self._without_shared_files(python)
        if python is None:
            python = "python" if self._container else sys.executable
        self._python = command_words("python", python)
        self._exclude_hosts = host_names(EXCLUDE_HOSTS, exclude_hosts)
        given = {name: value for name, value in options.items() if value is not None}
        self._take_options(native, given)

    def __init_subclass__(cls) -> None:
        """Write all arguments into the docstring of the derived class."""
        _, _, common = (BatchScheduler.__doc__ or "").partition("such scheduler:\n")
        if cls.__doc__:
            cls.__doc__ = f"{cls.__doc__.rstrip()}\n{common}"

    @classmethod
    def _findings(cls, environment: Mapping[str, str]) -> Iterator[Finding]:
        """Yield the findings of `gridengine doctor` on this batch system."""
        raise NotImplementedError

    @classmethod
    def _system_here(cls) -> str:
        """Return the name of the batch system, if it would take a job of this user.

        Raises:
            ConfigurationError: a setting is wrong.
            BatchSystemError: there is none, or it takes no job.
        """
        raise NotImplementedError

    @abstractmethod
    def _take_options(self, native: str, given: dict[str, Any]) -> None:
        """Store the batch system's own options: its `native` text, and arguments by name."""

    def _without_shared_files(self, python: object) -> BroughtFiles:
        """Return the files that jobs are brought.

        Raises:
            TypeError, ConfigurationError: `brought_files` raises it, or other arguments, or the
                batch system, need a folder that the nodes share.
        """
        words = getattr(type(self), "_commands", None)
        if words is None or words.unbrought is None:
            raise ConfigurationError(
                f"shared_files=False: {type(self).__name__} cannot have its batch system bring "
                "files to the nodes; HTCondorScheduler and PBSScheduler can",
                hint="start workers by hand, in jobs that fetch what they need by scp: see 'Where "
                "nothing is shared' in docs/dispatcher.md",
            )
        if self.transport == "files":
            raise ConfigurationError(
                "transport='files' has messages travel in a folder that the nodes share, and with "
                "shared_files=False there is none",
                hint="leave one out; over TCP the settings host and ports say where the nodes find "
                "this machine",
            )
        if self._container:
            raise ConfigurationError(
                "container= binds the run directory, which the nodes do not see with "
                "shared_files=False",
                hint="give all words by python=, as ['apptainer', 'exec', '/images/a.sif', "
                "'python']; apptainer sees the folder that a job begins in",
            )
        return brought_files(python)

    def script(self, run: LaunchContext, first: str = "", more: str = "") -> str:
        """Return the script that a cluster task runs; `first` is run before everything else, `more`
        are further words of the worker's command, for the shell.
        """
        if self._brought is not None:
            return launch_script(
                worker_command(self._brought.words, Path(run.connection.name)),
                prologue=self._prologue,
                environment=self._environment,
                first="\n".join([first, *self._brought.lines]),
                more=more,
            )
        command = worker_command(self._python, run.connection)
        if self._container:
            folders = dict.fromkeys([run.directory, run.connection.parent])
            command = [*in_container(self._container, *folders), *command]
        return launch_script(
            command,
            prologue=self._prologue,
            environment=self._environment,
            path=python_path(
                "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
            ),
            caller=os.environ,
            first=first,
            more=more,
        )


class BatchLauncher(Launcher, Generic[Task]):
    """Starts workers as tasks of array jobs. Each has a log of its own, which identifies it."""

    def __init__(self, run: LaunchContext, *, script: str, name: str = "") -> None:
        self.run = run
        self._given_name = name
        self.owner = os.getpid()
        self.script = run.directory / "worker.sh"
        self.logs = run.directory / "logs"
        self.tasks: dict[Handle, Task] = {}
        """The launcher's knowledge of each task that it still watches."""
        # No log has the name of another, not even of an earlier epoch's.
        self.launches = MOST_LAUNCHES * run.epoch
        self.largest: int | None = None
        """The largest array that the site takes, once known."""
        self.text = script
        self._prepared = False

    @property
    def files(self) -> list[Path]:
        """The files to remove when this process is gone; never another dispatcher's."""
        return [
            path for path in (self.run.connection, self.script) if path.parent == self.run.directory
        ]

    @property
    def job_name(self) -> str:
        """The name of the jobs of the next launch, if the user has given none."""
        return job_name(self._given_name or self.label)

    def prepare(self) -> None:
        """Write the workers' script, once; `launch` calls this.

        Raises:
            ConfigurationError: the run directory cannot be written to.
        """
        if self._prepared:
            return
        try:
            self.logs.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(
                self.script, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o700
            )
            with open(descriptor, "w") as file:
                file.write(self.text)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write to the run directory {self.run.directory}: {error.strerror}",
                hint="set GRIDENGINE_RUN_DIRECTORY to another",
            ) from error
        self._prepared = True

    @abstractmethod
    def request(
        self, count: int, demand: Demand, log: Callable[[object], str]
    ) -> Mapping[str, object]:
        """Return the arguments of `submit`, by names for people, such as `argv`; change nothing."""

    def plan(self, count: int, demand: Demand = ANY) -> LaunchPlan:
        """Return the first submission. Later ones may be smaller, because limits on arrays are
        known only after a refusal.
        """
        return LaunchPlan(
            count, self.request(count, demand, functools.partial(self.log_path, 1)), self.text
        )

    @abstractmethod
    def submit(self, count: int, demand: Demand, log: Callable[[object], str]) -> Sequence[str]:
        """Submit an array job of `count` tasks with the arguments of `request`; return the tasks'
        ids, in order.

        log: returns the path of a task's log, given its number (from 1), or the placeholder that
            the batch system replaces by the number.

        Raises:
            TooMany, TryAgain, GridEngineError: it is refused; nothing was submitted.
        """

    def adopt(self, handles: Mapping[Handle, Demand], facts: Mapping[str, str]) -> None:
        for handle, demand in handles.items():
            self.launched([handle], demand)

    @abstractmethod
    def launched(self, handles: Sequence[Handle], demand: Demand) -> None:
        """Add these new tasks to `tasks`."""

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> None:
        """Delete these tasks. Tasks that have ended are no error.

        Raises:
            BatchSystemError: not now; the launcher retries by itself.
        """

    def try_delete(self, ids: Sequence[str]) -> None:
        """Delete these tasks, now or as soon as the batch system can be reached."""
        try:
            self.delete(ids)
        except BatchSystemError as error:
            tasks = plural(len(ids), "cluster task")
            logger.warning("%s could not be deleted yet: %s", tasks, error)

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Delete these tasks, and stop watching them."""
        ours = [handle for handle in handles if handle in self.tasks]
        if ours and os.getpid() == self.owner:
            self.try_delete([handle.id for handle in ours])
            self.forget(ours)

    def forget(self, handles: Iterable[Handle]) -> None:
        """Stop watching these tasks: they have ended, or are being deleted."""
        for handle in handles:
            self.tasks.pop(handle, None)

    def launch(self, count: int, demand: Demand = ANY) -> list[Handle]:
        """Submit `count` tasks as one array job, or several, or fewer if the site limits them."""
        started: list[Handle] = []
        while len(started) < count:
            left = count - len(started)
            try:
                handles = self._array(left, demand)
            except (TryAgain, ClusterError):
                if not started:
                    raise
                break
            started += handles
            if len(handles) < min(left, self.largest or left):
                break
        return started

    def _array(self, count: int, demand: Demand) -> list[Handle]:
        """Submit one array, of `count` tasks or as many as the site takes."""
        self.prepare()
        while True:
            count = min(count, self.largest or count)
            self.launches += 1
            log = functools.partial(self.log_path, self.launches)
            try:
                ids = self.submit(count, demand, log)
            except TooMany as error:
                if count == 1:
                    raise
                if error.limit is not None and 0 < error.limit < count:
                    self.largest = error.limit
                else:
                    count //= 2
                continue
            handles = [self.handle_of(self.launches, task, id) for task, id in enumerate(ids, 1)]
            self.launched(handles, demand)
            return handles

    def handle_of(self, launch: int, task: int, id: str) -> Handle:
        """Return the handle of the task with this number and id in a launch."""
        return Handle(id, self.log_path(launch, task))

    def log_path(self, launch: int, task: object) -> str:
        return f"{self.logs}/worker.{launch}.{task}.log"


def exit_report(handle: Handle, end: Report, host: str = "", *, look: str = "") -> Report:
    """Return the report on an ended cluster task, with the error if its worker never connected;
    `look` is the system's `BatchWords.look`.
    """
    kind = JobDeleted if end.deleted else WorkerNotStarted
    tail = log_tail(handle.log)
    cause, hint = first_match(f"{tail}\n{end.reason}", CAUSES) or (
        "",
        "the interpreter, the package and the run directory must be there on the node",
    )
    if handle.log and not cause and not Path(handle.log).exists():
        hint += f"; {NO_LOG}"
        hint += f", as `{look.replace('JOB', handle.id)}` tells" if look else ""
    reason = "; ".join(filter(None, [end.reason, cause]))
    error = kind(
        f"the cluster job ended before its worker connected: {reason}",
        host=host or None,
        job=handle.id,
        hint=None if end.deleted else hint,
    )
    add_log(error, handle.log)
    return end._replace(error=error)
