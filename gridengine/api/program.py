"""External programs as calls: `run_program` runs one, `Program` makes a function of one, and
`LineProgram` keeps one up that answers line by line.

A program runs in the runner of its call: on the call's cores, within its memory limit, in its
working directory and environment. It leads a process group of its own, which is ended when the
call ends, with all that the program has left running. When the runner itself is killed, the fork
server ends its orphans.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, Any, Unpack

from gridengine.api.map import starmap
from gridengine.arguments import flag, whole
from gridengine.client.keywords_and_arguments import CallAndRunKeywords, takes, unexpected_keyword
from gridengine.errors import ConfigurationError, exit_words
from gridengine.schedulers.ranks import launcher_of, spans_nodes
from gridengine.system.machine import wait_unreaped

if TYPE_CHECKING:
    from gridengine.schedulers.base import SchedulerSpec

TAIL_LINES, TAIL_CHARACTERS = 20, 2_000
END_SECONDS = 2.0
"""How long a program may take to end after SIGTERM."""
_UP: dict[tuple[int, LineProgram], _Conversation] = {}
"""The programs that are kept up, each with the process that started it: a fork has its own."""


class ProgramFailed(subprocess.CalledProcessError):
    """A program ended with another status than 0. The text has the last lines that it wrote.

    Attributes: `returncode` (negative: the signal that ended it), `cmd`, `stdout` and `stderr`
    (None where they went to a file), `tail`: the last lines of standard error, or of standard
    output where there are none.
    """

    def __init__(
        self,
        returncode: int,
        cmd: Sequence[str],
        output: str | bytes | None = None,
        stderr: str | bytes | None = None,
        tail: str = "",
    ) -> None:
        super().__init__(returncode, cmd, output, stderr)
        self.tail = tail

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.returncode, self.cmd, self.output, self.stderr, self.tail)

    def __str__(self) -> str:
        said = f"; it wrote last:\n{self.tail}" if self.tail else ""
        return f"{self.cmd[0]}: {exit_words(self.returncode)}{said}"


class Program:
    """A function that runs a program, for `map`, `submit` and `Job`:

        align = gridengine.Program(["bwa", "mem", "ref.fa"], stdout="{0}.sam")
        gridengine.map(align, ["a.fq", "b.fq"], resources=gridengine.Cores(4))

    Each call adds its arguments to the command line, as text. With `resources=Ranks(32)` the
    program is started as 32 ranks, by `srun` or `mpirun`.

    Args:
        argv: the program, and the arguments that all calls have. No shell is involved.
        input: what the program reads from standard input (default: nothing).
        files: files for the program, by name: text, bytes, or a path whose file is copied. With
            them the program runs in a new folder that holds them and is removed afterwards.
        stdout, stderr: a file to write to, below `cwd` unless absolute, in which `{0}`, `{1}` stand
            for the call's arguments; None returns the output.
        cwd: the folder that it runs in (default: that of the call).
        env: variables besides those of the call.
        text: return output as text, undecodable bytes replaced; False: as bytes.
        check: raise `ProgramFailed` when the program fails.

    Raises:
        TypeError, ConfigurationError: an argument has a wrong type or value.
    """

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        input: str | bytes | None = None,
        files: Mapping[str, str | bytes | os.PathLike[str]] | None = None,
        stdout: str | os.PathLike[str] | None = None,
        stderr: str | os.PathLike[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        text: bool = True,
        check: bool = True,
    ) -> None:
        self._argv = _words(argv)
        self._input = input.encode() if isinstance(input, str) else input
        self._files = _contents(files or {})
        self._stdout, self._stderr = (
            None if one is None else os.fspath(one) for one in (stdout, stderr)
        )
        self._cwd = None if cwd is None else os.fspath(cwd)
        if self._cwd is not None and self._files:
            raise ConfigurationError(
                "a program with files= runs in a folder of its own, and has no cwd=",
                hint="leave out one of the two",
            )
        self._env = dict(env or {})
        self._text, self._check = flag("text", text), flag("check", check)
        self.__name__ = Path(self._argv[0]).name

    def __repr__(self) -> str:
        return f"Program({self._argv!r})"

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess[Any]:
        """Run the program with these arguments after its own.

        Raises:
            ProgramFailed: it ended with another status than 0, unless `check=False`.
            FileNotFoundError: there is no such program, or no folder for an output file.
            ConfigurationError: the program starts ranks itself, and the call asked for ranks.
        """
        argv = [*launcher_of(self._argv), *self._argv, *map(str, arguments)]
        with self._folder() as folder, contextlib.ExitStack() as files:
            ways = [
                None
                if name is None
                else files.enter_context(Path(folder or "", name.format(*arguments)).open("w+b"))
                for name in (self._stdout, self._stderr)
            ]
            with started(argv, ways, folder, self._env) as process:
                # What it leaves running in the background may hold the pipes open.
                Thread(target=_end_group_after, args=(process.pid,), daemon=True).start()
                out, err = process.communicate(self._input)
            failed = self._check and process.returncode
            tail = ""
            if failed:  # looked up here, while the files are open
                tail = _tail(err) or _tail(out) or _tail_of_file(ways[1]) or _tail_of_file(ways[0])
        done: subprocess.CompletedProcess[Any] = subprocess.CompletedProcess(
            argv, process.returncode, *map(self._returned, (out, err))
        )
        if failed:
            raise ProgramFailed(process.returncode, argv, done.stdout, done.stderr, tail)
        return done

    def _returned(self, output: bytes | None) -> str | bytes | None:
        return output.decode(errors="replace") if output is not None and self._text else output

    @contextlib.contextmanager
    def _folder(self) -> Iterator[str | None]:
        """Provide the folder to run in; None is the call's own."""
        if not self._files:
            yield self._cwd
            return
        # Other nodes do not have this node's folder for temporary files.
        place = Path.cwd() if spans_nodes() else None
        with tempfile.TemporaryDirectory(prefix="gridengine-program.", dir=place) as folder:
            for name, content in self._files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, bytes):
                    path.write_bytes(content)
                else:
                    shutil.copy(content, path)
            yield folder


ELSEWHERE = {
    "shell": 'for a shell write run_program(["bash", "-c", "sort | uniq"])',
    "capture_output": "the output is captured anyway: see the stdout and stderr of what it returns",
    "executable": "the program is the first word of the list",
    "universal_newlines": "it is text=",
}
"""How to say what these keywords of `subprocess.run` say."""


@takes(CallAndRunKeywords)
def run_program(
    argv: Sequence[str | os.PathLike[str]],
    *,
    input: str | bytes | None = None,
    files: Mapping[str, str | bytes | os.PathLike[str]] | None = None,
    stdout: str | os.PathLike[str] | None = None,
    stderr: str | os.PathLike[str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    text: bool = True,
    check: bool = True,
    scheduler: SchedulerSpec = None,
    **keywords: Unpack[CallAndRunKeywords],
) -> subprocess.CompletedProcess[Any]:
    """Run a program on a worker, and return a `subprocess.CompletedProcess`.

        done = gridengine.run_program(["samtools", "flagstat", "a.bam"],
                                      resources=gridengine.Cores(4) & gridengine.Memory(8))
        print(done.stdout)

    Args:
        argv, input, files, stdout, stderr, cwd, env, text, check: as for `Program`.
        scheduler: as for `map`.
        keywords: `resources`, `timeout`, `retries` and the others of `map`.

    Raises:
        ProgramFailed: the program ended with another status than 0.
        FileNotFoundError: the worker has no such program.
        CallError, ClusterError: the reason why the call could not end.
    """
    for name in ELSEWHERE.keys() & keywords.keys():
        raise unexpected_keyword("run_program", name, (), ELSEWHERE[name])
    program = Program(
        argv,
        input=input,
        files=files,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=env,
        text=text,
        check=check,
    )
    [done] = starmap(program, [()], scheduler=scheduler, progress=False, **keywords)
    return done


class LineProgram:
    """A program that stays up between calls and answers line by line, as a function for `map`:

        solve = gridengine.LineProgram(["bc", "-l"])
        gridengine.map(solve, ["1+1", "2^10"])              # ["2", "1024"]

    Each process that runs calls starts the program at its first call and keeps it until the process
    ends. A call writes its argument as one line, and returns the answer without its last line's
    end. When the program ends, the call fails, and the next one starts it anew.

    Args:
        argv: the program and its arguments. It must write out each answer at once, as many
            programs do only with an option such as `-u` or `--line-buffered`.
        lines: the number of lines of an answer.
        until: the line that ends an answer, in the place of `lines`; it is not returned.
        env: variables besides those of the call.

    Raises:
        ConfigurationError: an argument has a wrong type or value.
    """

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        lines: int = 1,
        until: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._argv = tuple(_words(argv))
        lines = whole("lines", lines, hint="say lines=1")
        self._lines, self._until = lines, until
        self._env = tuple(sorted((env or {}).items()))
        self.__name__ = Path(self._argv[0]).name

    def _key(self) -> tuple[object, ...]:
        return self._argv, self._lines, self._until, self._env

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LineProgram) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"LineProgram({list(self._argv)!r})"

    def __call__(self, line: object) -> str:
        """Write a line to the program, and return its answer.

        Raises:
            ConfigurationError: the argument is of several lines.
            ProgramFailed: the program ended before it had answered.
            FileNotFoundError: there is no such program.
        """
        text = str(line)
        if "\n" in text:
            raise ConfigurationError(
                f"a line for {self.__name__} has a line break in it: {text!r}",
                hint="make a call for each line",
            )
        place = os.getpid(), self
        talk = _UP.get(place)
        if talk is None:
            talk = _UP[place] = _Conversation(self._argv, dict(self._env))
        try:
            return talk.ask(text, self._lines, self._until)
        except BaseException:  # an answer that nobody reads would be taken for the next one's
            _UP.pop(place).end()
            raise


class _Conversation:
    """One running program, and the two ends of its lines."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._argv = list(argv)
        self._stack = contextlib.ExitStack()
        # A pipe that nobody reads would fill up.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
        self._stack.enter_context(self._complaints)
        ways = (None, self._complaints)
        self._process = self._stack.enter_context(started(argv, ways, None, env))

    def ask(self, line: str, lines: int, until: str | None) -> str:
        """Return the answer to one line."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: reading tells
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        answer: list[str] = []
        while until is not None or len(answer) < lines:
            raw = stdout.readline()
            if not raw.endswith(b"\n"):
                raise self._failure(raw)
            text = raw.decode(errors="replace").removesuffix("\n")
            if text == until:
                break
            answer.append(text)
        return "\n".join(answer)

    def _failure(self, last: bytes) -> ProgramFailed:
        """Return the error of a program that has closed its output."""
        self._process.wait()
        tail = _tail_of_file(self._complaints) or _tail(last)
        return ProgramFailed(self._process.returncode, self._argv, tail=tail)

    def end(self) -> None:
        """End the program."""
        self._stack.close()


@contextlib.contextmanager
def started(
    argv: Sequence[str],
    ways: Sequence[IO[bytes] | None],
    folder: str | None,
    env: Mapping[str, str],
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program for the length of a block, then end its process group. A program that runs
    on then gets SIGTERM first: mpirun and srun end their ranks on other nodes.

    Raises:
        FileNotFoundError: there is no such program; a note says where it was looked for.
    """
    owner = os.getpid()
    out, err = (subprocess.PIPE if way is None else way for way in ways)
    environment = {**os.environ, **env}
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            cwd=folder,
            env=environment,
            process_group=0,
        )
    except FileNotFoundError as error:
        if "/" in argv[0]:
            raise
        error.add_note(
            f"looked for in PATH={environment.get('PATH', '')}\n"
            "try: make it known where calls run, as by prologue=['module load ...'] of the "
            "scheduler, or give its whole path"
        )
        raise
    try:
        yield process
    finally:
        if os.getpid() == owner:  # else a fork drops its copy: the program is its parent's
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_SECONDS)
            with contextlib.suppress(ProcessLookupError):  # nobody is left
                os.killpg(process.pid, signal.SIGKILL)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):  # nobody reads the unsent rest
                        pipe.close()
            process.wait()


def _end_group_after(pid: int) -> None:
    """Wait until a program ends, then kill the rest of its process group. The program stays
    unreaped meanwhile, so that no other process gets its id.
    """
    with contextlib.suppress(ChildProcessError, ProcessLookupError):  # it is reaped already
        wait_unreaped(pid)
        os.killpg(pid, signal.SIGKILL)


def _words(argv: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return a command line as words.

    Raises:
        ConfigurationError: it is none.
    """
    if isinstance(argv, str | bytes | os.PathLike) or not isinstance(argv, Sequence) or not argv:
        raise ConfigurationError(
            f"argv must be a list of words, the program first, not {argv!r}",
            hint='say ["sort", "-n"], or, where a shell is wanted, ["bash", "-c", "sort | uniq"]',
        )
    for word in argv:
        if not isinstance(word, str | os.PathLike):
            raise ConfigurationError(
                f"argv has {word!r}, which is no text", hint="write str(...) around it"
            )
    return [os.fspath(word) for word in argv]


def _contents(files: Mapping[str, str | bytes | os.PathLike[str]]) -> dict[str, bytes | str]:
    """Return files by name: their content as bytes, or the path to copy from as text.

    Raises:
        ConfigurationError: a name points out of the program's folder.
    """
    found: dict[str, bytes | str] = {}
    for name, content in files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ConfigurationError(
                f"files has the name {name!r}, which is no place below the program's folder",
                hint="give a relative name without '..'",
            )
        if isinstance(content, str):
            found[name] = content.encode()
        else:
            found[name] = content if isinstance(content, bytes) else str(Path(content).absolute())
    return found


def _tail(output: bytes | None) -> str:
    """Return the last lines of an output."""
    text = (output or b"")[-TAIL_CHARACTERS:].decode(errors="replace").strip()
    return "\n".join(text.splitlines()[-TAIL_LINES:])


def _tail_of_file(file: IO[bytes] | None) -> str:
    """Return the last lines of an output that went to a file."""
    if file is None:
        return ""
    size = os.fstat(file.fileno()).st_size
    return _tail(os.pread(file.fileno(), TAIL_CHARACTERS, max(0, size - TAIL_CHARACTERS)))
