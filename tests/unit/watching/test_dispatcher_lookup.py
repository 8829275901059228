"""Each word that is printed, by each who takes one: the dispatchers, folders, files and runs meant.

There are a stand-alone dispatcher `main`, to which the script `cl.py` has handed the run `far`; a
script `night.py` on a cluster with the run `seen`; and a script `twin.py` with two dispatchers.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gridengine.dispatcher.run_directory import new_run_id
from gridengine.dispatcher.standalone.dispatcher_folder import (
    DispatcherFolder,
    FarMachine,
    StartOptions,
)
from gridengine.dispatcher.watch_messages import Identity, WatchAnswer
from gridengine.errors import ClusterError, ConfigurationError, JournalError
from gridengine.journal.lock_file import Holder
from gridengine.journal.run_file import RunFile, path_of
from gridengine.status.rows import ConnectedWorkerStatus, LaunchStatus, Status
from gridengine.watching.dispatcher_lookup import (
    answer_of,
    by_itself,
    client_file,
    connect,
    new_or_known,
    or_as_call,
    standalone,
    worker_file,
)
from gridengine.watching.names import NotKnown, SeveralMeant
from gridengine.watching.run_lookup import own_run_file, run_file
from gridengine.wire.connection_file import replace_private, to_json
from tests.support.named_calls import store_run
from tests.support.watched import WHO, FakeWatched, Machine, save_connection, silent

MAIN, NIGHT = "20261123-093000-dispatcher-node7-17-1b2c3d", "20261124-100000-node7-55-0a1b2c"
TWINS = "20261123-093000-node7-66-2c3d4e", "20261123-093000-node7-66-3d4e5f"
ADDRESS = "tcp://10.0.0.7:4711"
WORKER = ConnectedWorkerStatus(
    "w1", "node1", 7, "4711.2", "", "idle", 1.0, 1.0, None, 1, 1, 0, 0, 0
)


class World:
    """What there is, in folders and on sockets of its own."""

    def __init__(self, root: Path, machine: Machine) -> None:
        self.machine = machine
        self.runs = root / "runs"
        self.main = self.runs / "dispatchers" / "main"
        self.night = self.runs / NIGHT

    def add(self, name: str, run: str, pid: int, **more: Any) -> None:
        """Add a dispatcher; that of the night tells of workers only when it is asked for them."""
        who = Identity(name, run, pid, "node7", f"/s/{name}", "/s", 0.0, "Slurm", "1", "3.11")
        jobs = [LaunchStatus("", job="4711.1")] if run == NIGHT else []

        def answer(ask: str) -> WatchAnswer:
            workers = [WORKER] if run == NIGHT and one.asked[-1][1] else []
            return WatchAnswer(replace(who, **more), Status(launches=jobs, workers=workers))

        one = self.machine.add(FakeWatched(answer), pid)

    def add_main(self) -> None:
        far, home = {"far": str(path_of("far"))}, str(self.main)
        self.add("main", MAIN, 17, script="", home=home, runs=far, clients=[("cl.py", 77)])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    world = World(tmp_path, machine)
    with contextlib.closing(standing(world.main)):
        (world.night / "logs").mkdir(parents=True)
        (world.night / "connection.json").write_text("{}")
        for name in ("seen", "far"):
            save_run(name)
        world.add_main()
        world.add("night.py", NIGHT, 55, folder=str(world.night), runs={"seen": path("seen")})
        for run in TWINS:
            world.add("twin.py", run, 66)
        yield world


def standing(path: Path) -> Any:
    """Make the folder of a dispatcher that runs until what this returns is closed."""
    folder = DispatcherFolder(path)
    path.mkdir(parents=True)
    folder.options_file.write_bytes(msgspec.json.encode(StartOptions("processes")))
    (path / "server.json").write_text(f'{{"run_id": "{MAIN}"}}')
    folder.client_file.write_text(f'{{"addresses": ["{ADDRESS}"]}}')
    for name in ("worker.json", "watcher.json", "journal.sqlite"):
        (path / name).write_text("{}")
    lock = folder.take_lock()
    lock.write(replace(Holder.here(), pid=17))
    return lock


def save_run(name: str) -> None:
    run = RunFile(name, path_of(name))
    run.begin()
    run.close()
    run.writer.close()


def path(run: str) -> str:
    return str(path_of(run))


def words(world: World) -> dict[str, Sequence[str]]:
    """Return what is printed of each: of itself, and of whose calls it has."""
    main, night = str(world.main), str(world.night)
    files = [f"{main}/{name}" for name in ("client.json", "worker.json", "journal.sqlite")]
    return {
        "main": ["main", "17", "1b2c3d", MAIN, MAIN[:20], ADDRESS, main, f"{main}/", *files],
        "far": ["far", path("far"), "runs/named/far.sqlite", "cl.py", "/x/cl.py", "77"],
        "night": [
            *("night.py", "night", "/s/night.py", "55", "0a1b2c", NIGHT, NIGHT[:8], "4711.1"),
            *("4711.2", night, f"{night}/connection.json", f"{night}/logs/worker.4711.1.log"),
        ],
        "seen": ["seen", path("seen")],
        "twins": ["twin.py", "twin", "66"],
        "each twin": ["2c3d4e", TWINS[1]],
        "nothing": ["nosuch", "4242", "tcp://10.0.0.8:4711", "/nowhere/client.json", "7\0"],
    }


def outcome(take: Callable[[str], Any], word: str) -> Any:
    """Return what is meant by a word, or the kind of error that it is."""
    try:
        found = take(word)
    except ConfigurationError as error:
        return type(error)
    return found.path if isinstance(found, DispatcherFolder) else found


def watched(word: str) -> tuple[str, str]:
    """Return the run id of the dispatcher that a word names, and whose calls alone it means."""
    with connect(word) as found:
        return found.ask().identity.run_id, found.run


def test_each_part_of_a_name_is_a_word(world: World) -> None:
    said = words(world)
    for word in said["main"]:
        assert watched(word) == (MAIN, ""), word
    for word in said["night"]:
        assert watched(word) == (NIGHT, ""), word
    for word in said["seen"]:
        assert watched(word) == (NIGHT, "seen"), word
    assert [watched(word)[1] for word in said["far"]] == [*["far"] * 3, "cl.py", "cl.py", "77"]
    assert [watched(word)[0] for word in said["each twin"]] == list(TWINS)
    for word in (*said["main"], *said["night"], *said["seen"], *said["far"]):
        assert answer_of(word)[1], word
    for word in (*said["twins"], ""):
        assert outcome(watched, word) is SeveralMeant, word
    for word in said["nothing"]:
        assert outcome(watched, word) is NotKnown, word


def test_a_number_alone_that_names_no_dispatcher_is_a_call_of_the_only_one() -> None:
    def look(name: str, which: str) -> tuple[str, str]:
        if name not in ("", "42"):
            raise NotKnown(name)
        return name, which

    assert or_as_call(look, "50", "") == ("", "50")
    assert or_as_call(look, "42", "") == ("42", "")
    for name, which in (("50", "1"), ("night", "")):
        with pytest.raises(NotKnown, match=name):
            or_as_call(look, name, which)


def test_a_stand_alone_dispatcher_is_found_by_each_word(world: World) -> None:
    said = words(world)
    for word in (*said["main"], *said["far"]):
        assert outcome(standalone, word) == world.main, word
        assert client_file(word) == world.main / "client.json", word
    for word in said["main"]:
        assert outcome(by_itself, word) == world.main, word
    for word in said["main"][:3] + said["main"][5:]:
        assert outcome(new_or_known, word) == world.main, word
    for word in (*said["night"], *said["twins"], *said["nothing"], ""):
        for take in (standalone, by_itself, client_file):
            assert issubclass(outcome(take, word), ConfigurationError), word


def test_commands_that_end_a_dispatcher_take_no_word_for_a_part(world: World) -> None:
    for word in words(world)["far"]:
        with pytest.raises(ConfigurationError, match="names calls at the dispatcher 'main'") as it:
            by_itself(word)
        assert "say main to mean all of it; `gridengine cancel " in str(it.value.hint)
    for new in ("far", "night", "nosuch"):
        assert new_or_known(new) == DispatcherFolder.of(new)


def test_workers_are_started_by_each_word_for_a_dispatcher_that_takes_them(world: World) -> None:
    said = words(world)
    for word in (*said["main"], *said["far"]):
        assert worker_file(word) == world.main / "worker.json", word
    for word in (*said["night"], *said["seen"]):
        assert worker_file(word) == world.night / "connection.json", word
    for word in (*said["twins"], *said["each twin"]):
        with pytest.raises(ConfigurationError, match=r"twin\.py .* takes no workers from elsewhe"):
            worker_file(word)
    for word in (*said["nothing"], ""):
        assert issubclass(outcome(worker_file, word), ConfigurationError), word


def test_a_run_is_read_by_each_word_and_deleted_by_its_own(world: World) -> None:
    said = words(world)
    for name, others in (("far", said["main"]), ("seen", said["night"])):
        for word in (*said[name], *others):
            assert run_file(word) == path_of(name), word
            is_own = word == name or word.endswith(f"{name}.sqlite")
            assert outcome(own_run_file, word) == (path_of(name) if is_own else JournalError), word
    for word in ("twin.py", "66"):
        assert outcome(run_file, word) is SeveralMeant, word
    with pytest.raises(JournalError, match=r"twin\.py \(process 66\) has no run with a name"):
        run_file("2c3d4e")
    with pytest.raises(JournalError, match="there is no run 'nosuch'") as unknown:
        run_file("nosuch")
    assert unknown.value.hint == "there are: seen, far; `gridengine runs` lists them"


def test_a_run_that_no_dispatcher_has_is_found_by_the_process_that_began_it(world: World) -> None:
    world.machine.close()
    assert outcome(run_file, str(os.getpid())) is SeveralMeant
    path_of("far").unlink()
    assert run_file(str(os.getpid())) == path_of("seen")
    with pytest.raises(NotKnown, match="no dispatcher runs calls of the run 'seen' now") as it:
        connect("seen")
    assert str(it.value.hint).startswith("`gridengine results seen` has")


def test_an_error_for_an_unknown_word_lists_known_ones_nearest_first(world: World) -> None:
    with pytest.raises(NotKnown, match="no dispatcher 'nihgt' runs") as it:
        connect("nihgt")
    assert str(it.value.hint).startswith("there are: night.py, ")
    with pytest.raises(ConfigurationError, match="there is no dispatcher 'mian'") as it:
        client_file("mian")
    assert it.value.hint == "there are: main; start one: gridengine dispatcher start mian"
    with pytest.raises(ConfigurationError, match="there is no dispatcher 'tcp://h:1'") as it:
        client_file("tcp://h:1")
    assert "a copy of its client.json" in str(it.value.hint)


def test_files_that_were_copied_from_elsewhere_are_taken_as_they_are(
    world: World, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    for name in ("client.json", "worker.json", "mine.json"):
        (keys / name).write_text("{}")
    assert client_file(str(keys)) == client_file("keys/client.json") == keys / "client.json"
    assert worker_file("keys/worker.json") == keys / "worker.json"
    (keys / "other").mkdir()
    (keys / "other" / "client.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="is for clients"):
        worker_file("keys/other/client.json")
    assert client_file("keys/mine.json") == worker_file("keys/mine.json") == keys / "mine.json"


def test_the_folder_one_is_in_is_meant_by_no_other_word(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.main)
    for take in (connect, standalone, client_file, worker_file, run_file):
        for word in ("nosuch", "tcp://h:1"):
            assert issubclass(outcome(take, word), ConfigurationError), word
    assert client_file("client.json") == world.main / "client.json"
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path)
    assert new_or_known("later") == DispatcherFolder.of("later")


def test_a_stand_alone_dispatcher_that_does_not_run_is_told_with_its_state(world: World) -> None:
    world.machine.close()
    (world.main / "watcher.json").unlink()
    lock = world.main / "lock"
    lock.unlink()
    for take in (connect, worker_file):
        with pytest.raises(NotKnown, match="the dispatcher 'main' does not run"):
            take("1b2c3d")
    lock.write_bytes(msgspec.json.encode(replace(Holder.here(), pid=17)))
    with pytest.raises(ConfigurationError, match="the dispatcher 'main' was killed") as it:
        connect("main")
    assert it.type is ConfigurationError
    (world.main / "client.json").unlink()
    with pytest.raises(ConfigurationError, match="the dispatcher 'main' does not run"):
        client_file("17")


def test_a_dispatcher_behind_a_tunnel_is_told_with_the_command_that_opens_it(world: World) -> None:
    world.machine.close()
    folder = DispatcherFolder(world.main)
    replace_private(folder.tunnel_file, to_json(FarMachine("me@login")))
    (world.main / "worker.json").unlink()
    with pytest.raises(ConfigurationError, match="me@login 'python3 -m gridengine worker main"):
        worker_file("main")
    folder.lock.unlink()  # else it is held
    folder.client_file.unlink()
    for take in (connect, worker_file, client_file):
        with pytest.raises(ConfigurationError, match="open it: gridengine dispatcher connect main"):
            take("main")


def test_a_script_on_another_machine_is_asked_there_and_takes_workers(world: World) -> None:
    world.machine.close()
    for word in ("0a1b2c", "55", NIGHT):
        with pytest.raises(ConfigurationError, match=r"on node7.* on its machine alone") as it:
            connect(word)
        assert it.type is ConfigurationError
        assert worker_file(word) == world.night / "connection.json"
    (world.night / "connection.json").unlink()
    for word in (NIGHT, str(world.night)):
        for take in (connect, worker_file):
            with pytest.raises(NotKnown, match="has ended"):
                take(word)


def test_a_killed_run_is_told_to_have_kept_nothing(world: World) -> None:
    run = new_run_id().replace(f"-{os.getpid()}-", "-900000055-")
    (world.runs / run).mkdir()
    save_connection(world.runs / run)
    for word in ("900000055", run):
        with pytest.raises(NotKnown, match=f"the run {run} has ended") as it:
            connect(word)
        assert f"`gridengine logs {run}` shows what its workers wrote" in str(it.value.hint)


def test_a_silent_dispatcher_is_told_when_no_other_is_found(world: World) -> None:
    world.machine.add(FakeWatched(silent), 99)
    assert watched("night") == (NIGHT, "")
    words = "the dispatcher of process {} cannot be watched"
    with pytest.raises(ClusterError, match=rf"called 'nosuch', .*: {words.format(99)}"):
        connect("nosuch")
    with pytest.raises(ClusterError, match=f"^{words.format(99)}"):
        connect("99")
    world.machine.close()
    world.machine.add(FakeWatched(silent), 99)
    with pytest.raises(ClusterError, match=f"^{words.format(99)}"):
        connect()
    (world.main / "watcher.json").unlink()
    world.machine.close()
    world.machine.add(FakeWatched(silent), 17)
    with pytest.raises(ClusterError, match=f"^{words.format(17)}"):
        connect("main")
    assert standalone("17").path == world.main


def test_without_a_word_it_is_the_only_one(world: World) -> None:
    world.machine.close()
    world.add_main()
    assert watched("") == (MAIN, "")
    world.machine.close()
    (world.main / "watcher.json").unlink()
    with pytest.raises(NotKnown, match="no dispatcher of yours runs"):
        connect()

    def ends(ask: str) -> WatchAnswer:
        for path in world.machine.folder.iterdir():
            path.unlink()
        return WatchAnswer(replace(WHO, name="a.py"))

    world.machine.add(FakeWatched(ends))
    with pytest.raises(ClusterError, match=r"a\.py has just ended"):
        connect()


def test_a_script_names_the_dispatcher_that_has_its_run_when_its_client_has_left(
    world: World,
) -> None:
    def begun(name: str, script: str, pid: int, left: int = 0) -> None:
        store_run(name, left=left)
        with contextlib.closing(sqlite3.connect(path_of(name))) as connection, connection:
            connection.execute("UPDATE sessions SET script = ?, pid = ?", (f"/x/{script}", pid))

    begun("far", "hand_in.py", 70, left=3)
    begun("seen", "hand_in.py", 71)
    for word in ("hand_in.py", "hand_in", "70"):
        assert watched(word) == (MAIN, "far")
    begun("seen", "hand_in.py", 71, left=1)
    with pytest.raises(SeveralMeant, match="several runs are meant"):
        connect("hand_in.py")
    begun("far", "other.py", 0, left=3)
    assert watched("hand_in.py") == (NIGHT, "seen")
