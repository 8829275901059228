"""`CommandScheduler`: the class by which users run calls on a batch system that has commands."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar

from gridengine.arguments import flag
from gridengine.resources.demand import ANY
from gridengine.schedulers.batch_commands import BatchCommands
from gridengine.schedulers.batch_system import BatchScheduler, shown_as
from gridengine.schedulers.command import CommandRunner
from gridengine.schedulers.command_launcher import CommandLauncher, system_at_site
from gridengine.schedulers.launcher import LaunchContext
from gridengine.schedulers.requests import (
    check_leaves_out,
    own_options,
    own_walltime,
    worker_options,
)

if TYPE_CHECKING:
    from gridengine.schedulers.checks import Finding

PROBE_SECONDS = 10.0


class CommandScheduler(BatchScheduler):
    """Runs calls in jobs of a batch system that is used by its commands. For a system of a site's
    own, derive a class that names its `BatchCommands`.

    Args:
        strict: whether a job that the batch system takes but can never start is an error at once.
            With False it waits, for somebody to change the site or the job.
        options: any option of the command that submits, by its name with underscores for hyphens;
            None and False leave it out.
    """

    _commands: ClassVar[type[BatchCommands]]
    _launcher_class: ClassVar[type[CommandLauncher]] = CommandLauncher

    def __init_subclass__(cls) -> None:
        options = getattr(cls.__dict__.get("_commands"), "site_options", {})
        cls._own_arguments = {**dict.fromkeys(options), "strict": True}
        super().__init_subclass__()

    def _take_options(self, native: str, given: dict[str, Any]) -> None:
        self._strict = flag("strict", given.pop("strict", True))
        self._system = type(self)._commands()
        self._options = own_options(self._system, given, native)
        self._system.check(self._options)
        check_leaves_out(self._system, self._exclude_hosts)
        self.walltime = own_walltime(self._system, self._options)
        self._site_asked: Future[BatchCommands] | None = None

    def __repr__(self) -> str:
        return shown_as(self, shlex.join(self._options))

    def launcher(self, run: LaunchContext) -> CommandLauncher:
        launcher = self._launcher_class(
            run,
            script=self.script(run, self._system.first_lines),
            name=self._name,
            system=self._system,
            options=self._options,
            strict=self._strict,
            site=self._site_asked,
        )
        launcher.excluded, launcher.brought = self._exclude_hosts, self._brought
        return launcher

    def _prepare(self) -> None:
        """Ask for the limits of the site, which takes as long as this process's next imports."""
        with self._lock:
            unused = self._shared is None and not self._closed and self._site_asked is None
            if unused and self._system.questions():
                self._site_asked = Future()
                threading.Thread(
                    target=self._ask_site,
                    args=(self._site_asked,),
                    name=f"gridengine-{self._system.key}-site",
                    daemon=True,
                ).start()

    def _ask_site(self, answer: Future[BatchCommands]) -> None:
        try:
            runner = CommandRunner(self._system, os.environ)
            answer.set_result(system_at_site(self._system, runner, self._options))
        except BaseException as error:
            answer.set_exception(error)

    @classmethod
    def _findings(cls, environment: Mapping[str, str]) -> Iterator[Finding]:
        from gridengine.schedulers.checks import findings  # `doctor` alone

        return findings(cls._commands(), environment)

    @classmethod
    def _system_here(cls) -> str:
        system = cls._commands()
        options = worker_options(system, [], ANY)
        CommandRunner(system, os.environ).run(system.probe(options), PROBE_SECONDS)
        return system.title
