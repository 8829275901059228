"""The log of workers on a stand-alone dispatcher's own machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridengine.dispatcher.worker_links import LocalLog
from gridengine.errors import ConfigurationError
from gridengine.settings.schema import Settings


def test_the_log_is_a_private_file_that_the_next_process_goes_on_with(tmp_path: Path) -> None:
    for words in (b"one\n", b"two\n"):
        log = LocalLog(tmp_path, Settings())
        os.write(log.fd, words)
        log.close()
        log.close()
    assert log.path == tmp_path / "logs" / "local-workers.log"
    assert log.path.read_text() == "one\ntwo\n"
    assert (log.path.stat().st_mode & 0o777, log.path.parent.stat().st_mode & 0o777) == (
        0o600,
        0o700,
    )


@pytest.mark.linux
def test_the_log_is_kept_within_the_setting(tmp_path: Path) -> None:
    log = LocalLog(tmp_path, Settings(log_bytes=1000))
    os.write(log.fd, b"some words\n" * 1000)
    log.check()
    log.close()
    assert log.path.stat().st_size < 1000
    assert "bytes left out, by the setting log_bytes" in log.path.read_text()


def test_an_unwritable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    with pytest.raises(ConfigurationError, match=r"cannot write .*local-workers.log: File exists"):
        LocalLog(tmp_path, Settings())
