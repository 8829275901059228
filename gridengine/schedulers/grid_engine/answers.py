"""The remedies for Grid Engine's refusals, and for its reasons why jobs wait, in the texts of
8.1.9's master, scheduler and DRMAA library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

ARRAY_LIMIT = re.compile(r"more than (\d+) tasks")
OTHER_QUEUES = "disabled|suspend|not contained in its hard queue list"
"""Words that Grid Engine says of every queue, including queues that the job does not want."""
WAITING: Mapping[str, str] = {
    r"\bhold|\bheld": "`qrls JOB` releases it",
    "of prolog =": "the site's prolog fails, which is the administrators' to mend; each "
    "failure sets a queue into the error state, which they clear too (`qstat -f -explain E`, "
    "`qmod -c QUEUE`)",
    "calendar (suspend|disable)s it": "`qconf -sq QUEUE` names the calendar and `qconf -scal NAME` "
    "tells its hours: wait for these, or say another queue=",
    "subordinate to": "wait for that queue's jobs to end, or say another queue=",
    "execution time not reached": "wait for the time of native='-a ...', or for the beginning of "
    "its advance reservation (`qrstat` lists yours)",
    "temporarily not available": "`qstat -f -explain aAE` says why; the administrators clear a "
    "queue's error state (`qmod -c QUEUE`) or bring its host back",
    "disabled": "the administrators can enable the queue again (`qmod -e`); or say another queue=",
    "suspended": "wait until the queue is resumed; or say another queue=",
    "not contained in its hard queue list|unknown queue": "`qconf -sql` lists the queues; name "
    "another with queue=",
    "parallel environment|cannot run in PE|slots? in PE|offers only 0 slots": "`qconf -spl` "
    "lists the parallel environments, `qconf -sp NAME` their slots; name another with "
    "parallel_environment=, or ask for fewer Cores",
    "because it offers only|mem|slots|is full": "wait for others' jobs to end, or ask for "
    "less: Memory, Cores, or WTime of the calls",
    "limit|quota": "wait for your other jobs to end, or ask for less",
}
REMEDIES: Mapping[str, str] = {
    "no suitable queues": "no queue has all of this, even when it is empty: ask for less; or "
    "ask for something that a queue has (`qhost -F`, `qconf -sq QUEUE`)",
    r"unknown queue|queue \S+ does not exist": "`qconf -sql` lists the queues; name one with "
    "queue=",
    "duration of the advance reservation": "h_rt, or the WTime of calls and a minute, must fit "
    "into the reservation: `qrstat -ar ID` tells how long it is",
    "advance reservation": "`qrstat` lists your advance reservations, of which each ends with its "
    "jobs; `qrsub` makes one",
    "parallel environment": "`qconf -spl` lists the parallel environments; name one with "
    "parallel_environment='NAME SLOTS', or the one for Cores(n) in the setting "
    "parallel_environment of [grid_engine]",
    r"unknown resource|is not a complex attribute|missing value for resource": "`qconf -sc` "
    "lists the resources. Arguments of GridEngineScheduler that are not its own are asked for "
    "as -l NAME=VALUE: is one misspelt? Which one Memory and GPUs ask for is in the settings "
    "memory and gpus of [grid_engine]",
    r"(?<![/-])\bproject\b": "`qconf -sprjl` lists the projects and `qconf -sprj NAME` says "
    "who may use one; name one with native='-P NAME'",
    r"unknown option|invalid option|option.*argument": "`man qsub` lists the options that "
    "native= may have; is one misspelt?",
    r"time (value|specifier|format)|format of (time|date|seconds)|invalid format": "write a "
    "time as seconds or 'hours:minutes:seconds', as h_rt='2:00:00'; or leave it to the WTime "
    "of calls",
    r"memory (value|specifier)|is not a (double|memory)": "write an amount with a unit, as "
    "h_vmem='4G'; or leave it to the Memory of calls",
    "resolve hostname": "`qhost` lists the hosts",
    "submit host": "the administrators must make this machine a submit host (`qconf -as HOST`)",
    r"not allowed to submit|userset|department|minimum uid|lower than minimum": "the "
    "administrators say who may submit jobs here; root may not, as a rule: run this as a plain "
    "user",
    "reading answer list": "it takes no blanks in a name or an account, as native='-N NAME' or "
    "'-A ACCOUNT': write another; in name= of the scheduler they are replaced",
    "JSV": "the site's own check of jobs (JSV) refuses it: ask the administrators",
}
UNAVAILABLE: Mapping[str, str] = {
    "no DRMAA library was found": "source your site's settings.sh, which sets SGE_ROOT; "
    "`gridengine doctor` says what is here; scheduler=ProcessScheduler() has calls run on this "
    "machine",
    "SGE_ROOT|SGE_CELL|act_qmaster|bootstrap": "source your site's settings.sh: it sets "
    "SGE_ROOT and SGE_CELL to where this site's Grid Engine is",
    "cannot open shared object file|invalid ELF": "DRMAA_LIBRARY_PATH, the setting "
    "drmaa_library or drmaa_library= must name a DRMAA library for this machine (libdrmaa.so)",
    "submit host": REMEDIES["submit host"],
    "qmaster|commlib|connect": "is sge_qmaster running, and can this machine reach it? `qstat` "
    "tells; ask the administrators",
    "": "`gridengine doctor` says what is here",
}
