"""Envelopes as files: whole, in order, within bounds, and of nobody else."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from gridengine.errors import ProtocolError
from gridengine.wire import exchange_folder
from gridengine.wire.exchange_folder import (
    ALIVE,
    ALIVE_SECONDS,
    FILE_BYTES,
    LARGEST,
    MOST_BYTES,
    MOST_FILES,
    Gone,
    Inbox,
    Outbox,
    decode_file,
    encode_file,
    is_attended,
    make_folder,
)
from tests.support.small_disk import filled, small_disk

KEY = b"key of the run"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a receiver's folder."""
    make_folder(tmp_path / "receiver")
    return tmp_path / "receiver"


@pytest.fixture
def outbox(folder: Path) -> Outbox:
    return Outbox(folder, "aa", KEY)


@pytest.fixture
def inbox(folder: Path) -> Inbox:
    return Inbox(folder, KEY)


def written(outbox: Outbox, *texts: bytes) -> None:
    """Write a file for each text."""
    for text in texts:
        outbox.put([text])
        assert outbox.flush()


def texts(inbox: Inbox, most: int = MOST_BYTES) -> list[bytes]:
    return [b"".join(frames) for _, frames in inbox.take(most)]


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def test_envelopes_arrive_as_they_were_and_their_files_are_removed(
    outbox: Outbox, inbox: Inbox, folder: Path
) -> None:
    outbox.put([b"envelope", b"", memoryview(bytes(100_000))])
    outbox.put([b"second"])
    assert outbox.flush()
    assert names(folder) == ["aa.000000000001"]
    [(sender, first), (_, second)] = inbox.take()
    assert sender == "aa"
    assert [bytes(frame) for frame in first] == [b"envelope", b"", bytes(100_000)]
    assert second == [b"second"]
    assert names(folder) == []
    assert inbox.take() == []


def test_envelopes_of_each_sender_arrive_in_order(folder: Path, inbox: Inbox) -> None:
    first, other = Outbox(folder, "bb", KEY), Outbox(folder, "aa", KEY)
    for number in range(12):
        written(first, b"%d" % number)
    written(other, b"other")
    came = [b"".join(frames) for sender, frames in inbox.take() if sender == "bb"]
    assert came == [b"%d" % number for number in range(12)]


def test_no_sender_keeps_the_others_waiting(folder: Path, inbox: Inbox) -> None:
    for sender in "aa", "bb", "cc":
        written(Outbox(folder, sender, KEY), *[sender.encode()] * 3)
    came = [texts(inbox, most=1)[0] for _ in range(4)]
    assert came == [b"aa", b"bb", b"cc", b"aa"]


def test_many_bytes_make_several_files_and_an_envelope_is_never_cut(
    outbox: Outbox, inbox: Inbox, folder: Path
) -> None:
    for _ in range(5):
        outbox.put([bytes(FILE_BYTES // 2)])
    assert outbox.flush()
    assert len(names(folder)) == 3
    assert max(one.stat().st_size for one in folder.iterdir()) < LARGEST
    assert len(inbox.take()) == 5


@pytest.mark.parametrize(
    ("size", "files"), [(1, MOST_FILES), (FILE_BYTES, MOST_BYTES // FILE_BYTES)]
)
def test_a_receiver_that_reads_nothing_gets_a_bounded_number_of_files_and_bytes(
    size: int, files: int, outbox: Outbox, inbox: Inbox, folder: Path
) -> None:
    outbox_is_empty = True
    for _ in range(files + 1):
        outbox.put([bytes(size)])
        outbox_is_empty = outbox.flush()
    assert not outbox_is_empty
    assert len(names(folder)) == files
    assert not outbox.flush()
    inbox.take(1)
    assert outbox.flush()
    assert len(names(folder)) == files
    while inbox.take():
        pass
    assert names(folder) == []


def test_a_file_that_a_killed_sender_has_not_finished_is_left_alone(
    outbox: Outbox, inbox: Inbox, folder: Path
) -> None:
    (folder / ".aa.000000000001").write_bytes(b"half")
    assert inbox.take() == []
    written(outbox, b"whole")  # of the same name, as by a sender whose first try failed
    assert texts(inbox) == [b"whole"]


def test_a_file_that_a_list_has_missed_is_waited_for_once(
    outbox: Outbox, inbox: Inbox, folder: Path
) -> None:
    written(outbox, b"first", b"second")
    hidden = folder / "aa.000000000001"
    hidden.rename(folder / "hidden")
    assert texts(inbox) == []
    (folder / "hidden").rename(hidden)
    assert texts(inbox) == [b"first", b"second"]


def test_after_a_file_that_is_lost_the_later_ones_are_taken(
    outbox: Outbox, inbox: Inbox, folder: Path
) -> None:
    written(outbox, b"first", b"second", b"third")
    (folder / "aa.000000000001").unlink()
    assert texts(inbox) == []
    assert texts(inbox) == [b"second", b"third"]


def test_a_file_that_comes_a_second_time_is_removed_unread(
    outbox: Outbox, inbox: Inbox, folder: Path
) -> None:
    written(outbox, b"first")
    content = (folder / "aa.000000000001").read_bytes()
    assert texts(inbox) == [b"first"]
    (folder / "aa.000000000001").write_bytes(content)
    written(outbox, b"second")
    assert texts(inbox) == [b"second"]
    assert names(folder) == []


def test_a_file_server_that_repeats_requests_loses_nothing(
    outbox: Outbox, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def rename_and_deny(path: Path, target: Path) -> NoReturn:
        rename(path, target)
        raise FileNotFoundError(errno.ENOENT, "no such file")

    monkeypatch.setattr(Path, "rename", rename_and_deny)
    written(outbox, b"first", b"second")
    assert texts(inbox) == [b"first", b"second"]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def of_another_run(path: Path) -> None:
    path.unlink()
    written(Outbox(path.parent, "aa", b"another key"), b"first")


def of_another_folder(path: Path) -> None:
    make_folder(path.parent.parent / "other")
    other = Outbox(path.parent.parent / "other", "aa", KEY)
    written(other, b"first")
    (path.parent.parent / "other" / path.name).replace(path)


def a_link(path: Path) -> None:
    path.rename(path.parent / "target")
    path.symlink_to("target")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as sock:
        os.chdir(path.parent)  # the name of a socket is short
        sock.bind(path.name)


def of_another_user(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root may give files away")
    os.chown(path, 12345, 12345)


def too_large(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(LARGEST + 1)


@pytest.mark.parametrize(
    "spoil",
    [
        cut_short,
        changed,
        of_another_run,
        of_another_folder,
        a_link,
        a_pipe,
        a_socket,
        of_another_user,
        too_large,
    ],
)
def test_a_file_that_is_not_ours_or_not_whole_is_told_and_dropped(
    spoil: Callable[[Path], None],
    outbox: Outbox,
    inbox: Inbox,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(folder)
    written(outbox, b"first", b"second")
    spoil(folder / "aa.000000000001")
    with caplog.at_level(logging.WARNING, "gridengine"):
        assert texts(inbox) == [b"second"]
    assert "dropped the file aa.000000000001" in caplog.text
    assert not (folder / "aa.000000000001").is_symlink()
    assert texts(inbox) == []


def test_sizes_that_do_not_agree_are_no_envelope() -> None:
    [_, body] = encode_file("place", [[b"frame"]], KEY)
    cut = bytes(body)[:2]
    with pytest.raises(ProtocolError):
        decode_file("place", exchange_folder._head("place", cut, KEY) + cut, KEY)


def test_other_names_are_left_alone(inbox: Inbox, folder: Path) -> None:
    for name in "notes.txt", ".nfs0001", "aa.1", "AA.000000000001":
        (folder / name).touch()
    assert inbox.take() == []
    assert len(names(folder)) == 4


def test_a_folder_that_others_may_enter_is_not_read(inbox: Inbox, folder: Path) -> None:
    folder.chmod(0o755)
    with pytest.raises(PermissionError):
        inbox.take()


def test_a_link_to_a_folder_is_not_followed(inbox: Inbox, folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to("elsewhere")
    with pytest.raises((Gone, OSError)):
        inbox.take()
    with pytest.raises(PermissionError):
        make_folder(folder)


def test_a_folder_of_another_user_is_not_read(inbox: Inbox, folder: Path) -> None:
    if os.geteuid():
        pytest.skip("only root may give folders away")
    os.chown(folder, 12345, 12345)
    with pytest.raises(PermissionError):
        inbox.take()
    with pytest.raises(PermissionError):
        make_folder(folder)


def test_both_ends_notice_that_a_folder_was_removed(
    outbox: Outbox, inbox: Inbox, folder: Path
) -> None:
    shutil.rmtree(folder)
    outbox.put([b"first"])
    with pytest.raises(Gone):
        outbox.flush()
    with pytest.raises(Gone):
        inbox.take()


def test_envelopes_read_before_a_fault_of_the_file_server_are_not_lost(
    outbox: Outbox, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(outbox, b"first", b"second")
    read = exchange_folder._read

    def fail_at_second(folder: int, name: str) -> bytes:
        if name.endswith("2"):
            raise OSError(errno.EIO, "Input/output error")
        return read(folder, name)

    with monkeypatch.context() as patch:
        patch.setattr(exchange_folder, "_read", fail_at_second)
        assert texts(inbox) == [b"first"]
        with pytest.raises(OSError, match="Input/output error"):
            texts(inbox)
    assert texts(inbox) == [b"second"]


def test_on_a_full_disk_nothing_is_lost_and_no_half_file_is_left(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        make_folder(disk / "receiver")
        outbox, inbox = Outbox(disk / "receiver", "aa", KEY), Inbox(disk / "receiver", KEY)
        written(outbox, b"first")
        outbox.put([bytes(100_000)])
        with filled(disk):
            for _ in range(2):
                with pytest.raises(OSError, match="No space left"):
                    outbox.flush()
            assert names(disk / "receiver") == ["aa.000000000001"]
        assert outbox.flush()
        assert [len(text) for text in texts(inbox)] == [5, 100_000]


def test_a_dispatcher_is_there_while_it_touches_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_attended(tmp_path)
    mark = tmp_path / ALIVE
    mark.touch()
    assert is_attended(tmp_path)
    before = mark.stat().st_mtime - ALIVE_SECONDS - 1
    os.utime(mark, (before, before))
    assert not is_attended(tmp_path)
    assert names(tmp_path) == [ALIVE]

    def refuse(dir: Path) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert is_attended(tmp_path), "what cannot be found out is not denied"
