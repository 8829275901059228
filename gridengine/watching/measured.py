"""Resources as earlier runs have measured them (`resources="as measured"`)."""

from __future__ import annotations

from itertools import islice

from gridengine.arguments import GIGABYTE
from gridengine.display import log, plural
from gridengine.resources.base import ZERO, Resource
from gridengine.resources.kinds import Memory, WTime
from gridengine.watching.phrases import seconds, size
from gridengine.watching.runs_on_disk import ended_answers

AS_MEASURED = "as measured"
MOST_RUNS = 5
"""How many of the last runs with calls of the function count."""
MEMORY_MARGIN, TIME_MARGIN = 1.25, 2.0
LEAST_MEMORY, LEAST_SECONDS = 2**28, 60.0


def measured(name: str) -> Resource:
    """Return the memory and time that calls of this function need, by the reports of the last runs
    of any script: the most that a call has used, and a margin. Log both. ZERO without reports.
    """
    functions = (
        one
        for answer in ended_answers()
        for one in answer.status.functions
        if one.name == name and one.done
    )
    found = list(islice(functions, MOST_RUNS))
    memory = max((one.peak_memory for one in found), default=0)
    longest = max((bound for one in found for bound, _ in one.histogram), default=0.0)
    if not found:
        log().warning(
            "resources=%r: no report has calls of %s; none are requested", AS_MEASURED, name
        )
        return ZERO
    needs = WTime(max(LEAST_SECONDS, TIME_MARGIN * longest))
    told = f"{needs} (up to {seconds(longest)}, twice that)"
    request: Resource = needs
    if memory:
        space = Memory(round(max(LEAST_MEMORY, MEMORY_MARGIN * memory) / GIGABYTE, 2))
        request, told = space & needs, f"{space} (up to {size(memory)}, and a quarter); {told}"
    log().warning("resources of %s as measured in %s: %s", name, plural(len(found), "run"), told)
    return request
