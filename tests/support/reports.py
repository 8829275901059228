"""The answers in a report of `gridengine report`."""

from __future__ import annotations

import json
import re
from typing import Any


def answers_in(text: str) -> Any:
    """Return the embedded answers, by path."""
    found = re.search(r'<script type="application/json" id="answers">(.*?)</script>', text)
    assert found is not None
    return json.loads(found[1])


def explanations_in(text: str) -> str:
    """Return the explanations and their next steps."""
    told = answers_in(text)["/overview"]["explanations"]
    return "\n".join(f"{one['text']}\n{one['next_step']}" for one in told)
