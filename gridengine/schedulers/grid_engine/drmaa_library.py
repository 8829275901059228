"""Calls of the DRMAA library that the `drmaa` package makes otherwise than we need them."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

NO_RUSAGE = 24
"""The library's number for "there is no record of usage"."""


def names(session: Any) -> dict[str, str]:
    """Return how the library names the batch system and itself; it says so before a session is
    opened, too (GFD.22).
    """
    return {"system": str(session.drmsInfo), "implementation": str(session.drmaaImplementation)}


def exit_information(job: str) -> dict[str, Any] | None:
    """Return how a job ended, None when that is not known yet. To ask makes the session forget the
    job: so it is told once.

    Asked through the library itself: the package's own `wait` fails when there is no record of
    usage.
    """
    from drmaa import errors, wrappers
    from drmaa.helpers import adapt_rusage

    status = ctypes.c_int()
    usage = ctypes.pointer(ctypes.POINTER(wrappers.drmaa_attr_values_t)())
    name = ctypes.create_string_buffer(1024)
    try:
        call(
            wrappers.drmaa_wait,
            job.encode(),
            name,
            ctypes.sizeof(name),
            ctypes.byref(status),
            0,
            usage,
        )
    except errors.ExitTimeoutException:
        return None
    except errors.InvalidJobException as error:
        return {"words": str(error)}
    except Exception as error:
        if not str(error).startswith(f"code {NO_RUSAGE}:"):
            raise
        return {"aborted": True, "usage": {}}
    return {**_decoded(status), "usage": adapt_rusage(usage.contents)}


def call(function: Any, *arguments: Any) -> Any:
    """Call a function of the library; raise its error as the package does."""
    from drmaa.helpers import c

    return c(function, *arguments)


def run_bulk(job: Any, count: int) -> list[str]:
    """Submit an array job of `count` tasks; return their ids, in order.

    The package's own function, when it is refused, frees a list of ids which it never got.
    """
    from drmaa import wrappers

    ids = ctypes.pointer(ctypes.POINTER(wrappers.drmaa_job_ids_t)())
    call(wrappers.drmaa_run_bulk_jobs, ids, job, 1, count, 1)
    name = ctypes.create_string_buffer(1024)
    found = []
    # At the list's end, the package raises StopIteration.
    with contextlib.suppress(StopIteration):
        for _ in range(count):
            wrappers.drmaa_get_next_job_id(ids.contents, name, ctypes.sizeof(name))
            found.append(name.value.decode())
    wrappers.drmaa_release_job_ids(ids.contents)
    return found


def _decoded(status: ctypes.c_int) -> dict[str, Any]:
    from drmaa import wrappers

    def flag(function: Any) -> int:
        answer = ctypes.c_int()
        call(function, ctypes.byref(answer), status)
        return answer.value

    if flag(wrappers.drmaa_wifaborted):
        return {"aborted": True}
    if flag(wrappers.drmaa_wifexited):
        return {"status": flag(wrappers.drmaa_wexitstatus)}
    if flag(wrappers.drmaa_wifsignaled):
        name = ctypes.create_string_buffer(64)
        call(wrappers.drmaa_wtermsig, name, ctypes.sizeof(name), status)
        return {"signal": name.value.decode()}
    return {}
