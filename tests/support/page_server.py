"""`gridengine page`, and what it answers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request

SECONDS = 120


class PageServer:
    """`gridengine page`, in a process that was just started, until `end`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.address = process.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), (self.address, process.communicate())
        self.origin, _, self.token = self.address.partition("/?token=")

    def ask(
        self, path: str, body: dict[str, object] | None = None, **headers: str
    ) -> tuple[int, str]:
        """Return the status and the text of an answer to who brings the token; of events the first
        line.
        """
        request = urllib.request.Request(
            f"{self.origin}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                events = answer.headers.get_content_type() == "text/event-stream"
                return answer.status, (answer.readline() if events else answer.read()).decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def end(self) -> int:
        """End it as Ctrl-C does, and return its exit status."""
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=SECONDS)
        return self.process.returncode


def page_server(*words: str) -> PageServer:
    """Start `gridengine page`, by this very Python."""
    return PageServer(
        subprocess.Popen(
            [sys.executable, "-m", "gridengine", "page", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    )
