"""How a dispatcher in the background is started."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gridengine.dispatcher import background
from gridengine.dispatcher.dispatcher_folder import DispatcherFolder, StartOptions
from gridengine.errors import ConfigurationError


def test_options_that_a_full_disk_does_not_take_are_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_private(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(background, "write_private", write_private)
    with pytest.raises(ConfigurationError, match=r"options.json: No space left on device"):
        background.keep_options(DispatcherFolder(tmp_path), StartOptions("processes"))
    assert not list(tmp_path.iterdir())
