"""A Chromium without a window."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Debian's Chromium; skip where there is none, or fail when it must be there."""
    path = shutil.which("chromium")
    if path is None:
        reason = "there is no chromium here: install it: tools/debian-packages chromium"
        if os.environ.get("GRIDENGINE_REQUIRE_CHROMIUM") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    # Its sandbox is not for root.
    words = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=words, timeout=120_000)
        try:
            yield browser
        finally:
            browser.close()
