"""A process that outlives its parent to clean up: `python -I -S cleanup_process.py PARENT
COMMAND... -- FILE...`.

The parent writes words to its standard input. When the parent is gone, or closes the input without
`DONE`, this process removes the files, and runs the command, with those words appended, until it
succeeds, for at most a minute. It imports little, only of the standard library, and so starts in
ten milliseconds.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

DONE = b"done"
CLEAN_SECONDS = 60.0
"""How long to retry while the batch system does not answer."""
PARENT_SECONDS = 1.0
"""How often to check whether the parent lives: a fork of it may hold the pipe open."""
RETRY_SECONDS = 2.0


def wait(parent: int) -> bytes:
    """Wait until the parent is gone or has closed our standard input; return what it wrote."""
    said = b""
    while True:
        if select.select([0], [], [], PARENT_SECONDS)[0]:
            piece = os.read(0, 1024)
            said += piece
            if not piece:
                return said
        if os.getppid() != parent:
            return said


def clean(command: list[str], files: list[str]) -> int:
    """Remove the files, and run the command until it succeeds or the time is over."""
    for file in files:
        with contextlib.suppress(OSError):
            os.unlink(file)
    until = time.monotonic() + CLEAN_SECONDS
    while True:
        try:
            status = subprocess.run(
                command, stdin=subprocess.DEVNULL, timeout=CLEAN_SECONDS, check=False
            ).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"{command[0]}: {error}", file=sys.stderr)
            status = 1
        if status == 0 or time.monotonic() >= until:
            return status
        time.sleep(RETRY_SECONDS)


def main(arguments: list[str]) -> int:
    """Wait for the parent's end, then clean up; return 0 if nothing is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    middle = arguments.index("--")
    *said, last = wait(int(arguments[0])).split(b"\n")
    if DONE in (*said, last):
        return 0
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return clean([*arguments[1:middle], *map(os.fsdecode, said)], arguments[middle + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
