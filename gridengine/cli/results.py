"""`gridengine results`: write the results of a named run, for other programs."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shlex
import sys
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

import click

from gridengine.api.named_runs import CallOfRun, NamedRun, run_named
from gridengine.cli.completion import run_names
from gridengine.cli.console import command, echo, time_of, write_file
from gridengine.client.outliving_calls import how_left_go_on, who_has
from gridengine.display import plural
from gridengine.errors import ConfigurationError, Pending, short_repr
from gridengine.serialize.by_value import Pickler


@command("results", short_help="Write the results of a run with a name.")
@click.argument("name", shell_complete=run_names)
@click.option(
    "--format",
    "form",
    type=click.Choice(["pickle", "jsonl", "csv", "parquet"]),
    help="Default: by the ending of --output, else jsonl.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file; default standard output."
)
@click.option("--journal", help="Where the run is, if not in the run directory.")
@click.option(
    "--timeout",
    type=time_of(),
    help="How long to wait for calls that somebody runs, such as 30s or 2h (default: until they "
    "have ended).",
)
@click.option("--now", is_flag=True, help="Do not wait: as --timeout 0.")
def results_command(
    name: str,
    form: str | None,
    output: Path | None,
    journal: str | None,
    timeout: float | None,
    now: bool,
) -> None:
    """Write the results of the run NAME, in the order of its calls. NAME is whatever `gridengine
    runs` prints of it, or `gridengine ls` of the dispatcher that runs its calls.

    While a script has the run, or a stand-alone dispatcher has its calls, the command waits for the
    calls that have not ended.

    jsonl: a line of JSON for each call: {"call": 0, "arguments": {"x": 1}, "result": ...}, or
        "error" in place of "result" for a call that failed or has no result yet; NaN and infinity
        are null. csv and parquet: a row for each call, with its number, arguments, result and
        error. A result that is a record (a dict, a dataclass, a named tuple, a tuple) has a column
        for each field. pickle: a list of results, with an exception in the place of each missing
        one; if a script's classes are in it, gridengine must be installed where it is loaded.

    Arguments have the names of the function's parameters; "argument1" is the first where the
    function cannot be loaded here. In csv and parquet an argument whose name is that of a column
    (call, result, error) is called "argument.NAME", and a field whose name is taken "result.NAME".

    The exit status is 1 when there is no such run, or the format cannot hold its results. It is 0
    also when calls have no result; standard error tells how many.

    Examples:
      gridengine results sweep -o sweep.pickle       a list, for pickle.load
      gridengine results sweep --format jsonl | jq .
      gridengine results sweep --format csv -o sweep.csv
    """
    ending = "" if output is None else output.suffix
    form = form or FORMATS.get(ending, "jsonl")
    run = run_named(name, journal=journal)
    sys.path.append(str(Path(run.script).parent))  # the script's modules name the parameters
    seconds = 0.0 if now else timeout
    if seconds != 0 and (who := who_has(run.name, run.path)):
        left = plural(run.left, "call")
        echo(f"waiting for {left} that {who} has; --now takes the results that are there", err=True)
    calls = [] if form == "pickle" else run.calls(seconds)
    results = run.results(seconds) if form == "pickle" else [one.result for one in calls]
    content = _pickle(results) if form == "pickle" else WRITERS[form](calls)
    if output is None:
        sys.stdout.buffer.write(content)
    else:
        write_file(output, content)
    if words := _missing(run, results):
        echo(words, err=True)
    if unknown := sum(one.arguments is None for one in calls):
        echo(
            f"the arguments of {plural(unknown, 'call')} are not told: they are not stored, "
            "because of their size or because they refer to other calls, or cannot be rebuilt here",
            err=True,
        )


def _missing(run: NamedRun, results: Sequence[Any]) -> str:
    """Return how many calls have no result, why, and how to get one; empty if all have results."""
    left = sum(isinstance(one, Pending) for one in results)
    failed = sum(isinstance(one, BaseException) for one in results) - left
    parts = []
    if failed:
        again = f"`gridengine retry {shlex.quote(run.name)} --failed` runs these again"
        parts.append(f"{failed:,} failed ({again})")
    if left:
        parts.append(f"{left:,} left ({how_left_go_on(run.name, run.path)})")
    total = plural(len(results), "call")
    have = "has" if failed + left == 1 else "have"
    return f"{failed + left:,} of {total} {have} no result: {', '.join(parts)}" if parts else ""


def _json(call: CallOfRun) -> str:
    try:
        arguments = call.arguments and {name: _told(one) for name, one in call.arguments.items()}
        failed = isinstance(call.result, BaseException)
        outcome = {"error": _error(call.result)} if failed else {"result": call.result}
        line = {"call": call.number, "arguments": arguments, **outcome}
        text = json.dumps(line, default=_plain)
    except ConfigurationError:
        raise
    except (TypeError, ValueError):  # a key that is no text, an unsortable set, a circle
        raise _nothing_for(call.result) from None
    if "NaN" in text or "Infinity" in text:  # Python's json writes them, but they are no JSON
        text = json.dumps(json.loads(text, parse_constant=lambda name: None))
    return text


def _error(result: BaseException) -> str:
    return f"{type(result).__name__}: {_text(result)}"


def _told(argument: Any) -> Any:
    """Return an argument for JSON: what JSON has no form for is told as text."""
    try:
        text = json.dumps(argument, default=_plain_or_text)
        return json.loads(text, parse_constant=lambda name: None)
    except (TypeError, ValueError, RecursionError):
        return short_repr(argument)


def _plain_or_text(value: Any) -> Any:
    try:
        return _plain(value)
    except Exception:  # such as of an array that is on no CPU
        return _text(value)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # the user's own
        return short_repr(value)


def _plain(value: Any) -> Any:
    """Return the JSON form of a value that `json` does not know.

    Raises:
        ConfigurationError: the value has no JSON form.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return vars(value) if hasattr(value, "__dict__") else dataclasses.asdict(value)
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise _nothing_for(value)


def _nothing_for(value: Any) -> ConfigurationError:
    return ConfigurationError(
        f"JSON has no form for {short_repr(value)}", hint="--format pickle writes anything"
    )


def _csv(calls: Sequence[CallOfRun]) -> bytes:
    columns = _columns(calls)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode(errors="backslashreplace")


def _columns(calls: Sequence[CallOfRun]) -> dict[str, list[Any]]:
    """Return the columns of a table with a row for each call; None is in the empty places.

    Raises:
        ConfigurationError: a result is not a flat record.
    """
    given = [call.arguments or {} for call in calls]
    failed = [isinstance(call.result, BaseException) for call in calls]
    records = [{} if bad else _record(call.result) for bad, call in zip(failed, calls, strict=True)]
    columns: dict[str, list[Any]] = {"call": [call.number for call in calls]}
    for name in dict.fromkeys(name for one in given for name in one):
        title = _title("argument", name, {*columns, "result", "error"})
        columns[title] = [_cell(one[name]) if name in one else None for one in given]
    for name in dict.fromkeys(name for record in records for name in record) or ("result",):
        title = _title("result", name, {*columns, "error"})
        columns[title] = [record.get(name) for record in records]
    errors = zip(failed, calls, strict=True)
    columns["error"] = [_error(call.result) if bad else None for bad, call in errors]
    return columns


def _title(kind: str, name: Any, taken: Container[str]) -> str:
    title = str(name)
    while title in taken:
        title = f"{kind}.{title}"
    return title


def _cell(argument: Any) -> Any:
    """Return an argument as a single value: JSON for what has several, text for objects."""
    if isinstance(argument, str | float):
        return argument
    told = _told(argument)
    return json.dumps(told) if isinstance(told, dict | list) else told


def _record(result: Any) -> dict[str, Any]:
    """Return the fields of a flat record.

    Raises:
        ConfigurationError: a field is not a single value.
    """
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        result = {one.name: getattr(result, one.name) for one in dataclasses.fields(result)}
    elif isinstance(result, tuple):
        names = getattr(result, "_fields", None) or [f"column{n}" for n in range(len(result))]
        result = dict(zip(names, result, strict=True))
    record = result if isinstance(result, dict) else {"result": result}
    for value in record.values():
        if isinstance(value, dict | list | tuple | set) or getattr(value, "ndim", False):
            raise ConfigurationError(
                f"{short_repr(result)} is not a flat record", hint="--format jsonl or pickle"
            )
    return record


def _pickle(results: Sequence[Any]) -> bytes:
    """Return a pickle that contains the script's own classes."""
    file = io.BytesIO()
    Pickler(file, 5).dump(list(results))
    return file.getvalue()


def _parquet(calls: Sequence[CallOfRun]) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"parquet needs {error.name}, which is not installed",
            hint="pip install pyarrow; or --format csv",
        ) from error
    file = io.BytesIO()
    columns: dict[str, Any] = {}
    for name, values in _columns(calls).items():
        kind = pyarrow.string() if name == "error" else None  # also where all are empty
        try:
            columns[name] = pyarrow.array(values, kind)
        except (pyarrow.ArrowException, OverflowError, ValueError) as error:  # texts among numbers
            raise ConfigurationError(
                f"parquet has no form for the column {name!r}: {error}",
                hint="--format csv, jsonl or pickle",
            ) from None
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


WRITERS: dict[str, Callable[[Sequence[CallOfRun]], bytes]] = {
    "jsonl": lambda calls: "".join(f"{_json(one)}\n" for one in calls).encode(),
    "csv": _csv,
    "parquet": _parquet,
}
FORMATS = {".pickle": "pickle", ".pkl": "pickle", ".csv": "csv", ".parquet": "parquet"}
"""The formats by the endings of files."""
