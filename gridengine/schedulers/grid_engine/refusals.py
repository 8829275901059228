"""What it means that Grid Engine, or a DRMAA library, says no, or does not have what it took: pure
functions on its words.
"""

from __future__ import annotations

from gridengine.errors import SchedulerUnavailable, SubmissionRefused, WorkerNotStarted
from gridengine.schedulers.grid_engine import drmaa
from gridengine.schedulers.launcher import Handle, Report, TryAgain, Unavailable, failed
from gridengine.schedulers.refusals import TooMany, first_match, refused
from gridengine.settings.values import said_in


def lost_report(handle: Handle) -> Report:
    """Return the report on a job that Grid Engine has numbered, and does not have. Its worker may
    run all the same, as after the master was restored from a copy.
    """
    number = handle.id.partition(".")[0]
    words = f"Grid Engine does not have this job, to which it gave the number {number}"
    error = WorkerNotStarted(
        words,
        job=handle.id,
        hint=f"`qstat -j {number}` says so too. Where an option or a rule of the site (-w v, a "
        "JSV) has jobs checked and not taken, leave it out; or the master was restored from an "
        "older copy: run this again, or ask the administrators",
    )
    return failed(words, error=error, uncertain=True)


REMEDIES = {
    "no suitable queues": "no queue has all of this, even when it is empty: ask for less; or ask "
    "for something that a queue has (`qhost -F`, `qconf -sq QUEUE`)",
    r"unknown queue|queue \S+ does not exist": "`qconf -sql` lists the queues; name one with "
    "queue=",
    "parallel environment": "`qconf -spl` lists the parallel environments; name one with "
    "parallel_environment='NAME SLOTS', or the one for Cores(n) in the setting "
    "parallel_environment of [grid_engine]",
    r"unknown resource|is not a complex attribute|missing value for resource": "`qconf -sc` "
    "lists the resources. Arguments of GridEngineScheduler that are not its own are asked for as "
    "-l NAME=VALUE: is one misspelt? Which one Memory and GPUs ask for is in the settings memory "
    "and gpus of [grid_engine]",
    r"(?<![/-])\bproject\b": "`qconf -sprjl` lists the projects and `qconf -sprj NAME` says who "
    "may use one; name one with native='-P NAME'",
    r"unknown option|invalid option|option.*argument": "`man qsub` lists the options that "
    "native= may have; is one misspelt?",
    r"time (value|specifier|format)|format of (time|date|seconds)|invalid format": "write a time "
    "as seconds or 'hours:minutes:seconds', as h_rt='2:00:00'; or leave it to the WTime of calls",
    r"memory (value|specifier)|is not a (double|memory)": "write an amount with a unit, as "
    "h_vmem='4G'; or leave it to the Memory of calls",
    "resolve hostname": "`qhost` lists the hosts",
    r"submit host": "the administrators must make this machine a submit host (`qconf -as HOST`)",
    r"not allowed to submit|userset|department|minimum uid|lower than minimum": "the "
    "administrators say who may submit jobs here; root may not, as a rule: run this as a plain "
    "user",
    r"reading answer list": "it takes no blanks in a name or an account, as native='-N NAME' or "
    "'-A ACCOUNT': write another; in name= of the scheduler they are replaced",
    r"JSV": "the site's own check of jobs (JSV) refuses it: ask the administrators",
}
"""What can be done where a refusal holds these words, as regular expressions: the first that
matches (the texts are those of Grid Engine's master and DRMAA library, 8.1.9).
"""
UNAVAILABLE = {
    "no DRMAA library was found": "source your site's settings.sh, which sets SGE_ROOT; "
    "`gridengine doctor` says what is here; scheduler=ProcessScheduler() has calls run on this "
    "machine",
    "SGE_ROOT|SGE_CELL|act_qmaster|bootstrap": "source your site's settings.sh: it sets SGE_ROOT "
    "and SGE_CELL to where this site's Grid Engine is",
    "cannot open shared object file|invalid ELF": "DRMAA_LIBRARY_PATH, the setting drmaa_library "
    "or drmaa_library= must name a DRMAA library for this machine (libdrmaa.so)",
    "submit host": REMEDIES["submit host"],
    "qmaster|commlib|connect": "is sge_qmaster running, and can this machine reach it? `qstat` "
    "tells; ask the administrators",
}
"""What can be done where no session opens and these words are said."""


def unavailable(error: Unavailable) -> SchedulerUnavailable:
    """Return what to raise when DRMAA cannot be used."""
    return SchedulerUnavailable(
        f"no batch system can be used through DRMAA: {error}"
        + said_in(str(error), "drmaa_library"),
        hint=first_match(str(error), UNAVAILABLE) or "`gridengine doctor` says what is here",
    )


def refusal(error: drmaa.DrmaaRefused, native: str) -> TryAgain | SubmissionRefused:
    """Return what a refusal of a job that was asked for in these words means."""
    limit = drmaa.TASKS_LIMIT.search(str(error))
    if limit:
        return TooMany(str(error), int(limit[1]))
    if error.for_now:
        return TryAgain(str(error))
    hint = first_match(str(error), REMEDIES)
    return refused(f"the batch system refuses the job: {error}", native, hint, "grid_engine")
