"""Calls that have ended, as far as a run keeps how: an even sample of them."""

from __future__ import annotations

from gridengine.dispatcher.watch_messages import Answer, Ended
from gridengine.watching.phrases import Explanation, clock, names_of, seconds, where

SAMPLED = "which worker ran it is kept of an even sample of calls alone, and not of this one"


def ended_calls(answer: Answer, which: str) -> list[Ended]:
    """Return what is kept of how a call of this id, number, name or these words has ended, each
    attempt that returned or raised, the last one last.
    """
    return [one for one in answer.timeline if _has(one, which)]


def _has(one: Ended, which: str) -> bool:
    number = names_of(one.call)[-1]
    if which in (one.id, one.call, number):
        return True
    if one.calls == 1:
        return False
    task, _, index = which.rpartition(".")
    first = one.id.removeprefix(f"{task}.") if task else number
    if not (index.isdecimal() and first.isdecimal()):
        return False
    return int(first) <= int(index) < int(first) + one.calls


def explain_ended(answer: Answer, which: str) -> list[Explanation]:
    """Return what is known of a call that neither waits nor runs, nor has failed lately; nothing
    when there was none.
    """
    found = ended_calls(answer, which)
    if found:
        return [_explained(answer, found[-1], which)]
    number = names_of(which)[-1]
    functions = [one for one in answer.status.functions if _is_below(number, one.numbered)]
    if not functions:
        return []
    state = "has ended" if any(one.failed for one in functions) else "is done"
    return [Explanation("ended", f"call {number} {state}; {SAMPLED}")]


def _is_below(number: str, end: int) -> bool:
    return number.isdecimal() and int(number) < end


def _explained(answer: Answer, one: Ended, which: str) -> Explanation:
    call = one.call if one.calls == 1 else f"call {which} of {one.function}"
    many = "" if one.calls == 1 else f", with {one.calls - 1:,} others"
    state = "has failed" if one.failed else "is done"
    text = (
        f"{call} {state}: it ran on {where(one.host, one.job)}{many}, and took "
        f"{seconds(one.seconds)} until {clock(answer, one.seconds_ago)}"
    )
    return Explanation("ended", text, f"its worker's log is {one.log}" if one.log else "", one.host)
