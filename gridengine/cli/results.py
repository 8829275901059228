"""`gridengine results`: write the results of a named run, for other programs."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from gridengine.api.named_runs import NamedRun, run_named
from gridengine.cli.completion import run_names
from gridengine.cli.console import command, write_file
from gridengine.client.outliving_calls import how_left_go_on, who_has
from gridengine.display import plural
from gridengine.errors import ConfigurationError, Pending, short_repr
from gridengine.serialize.by_value import Pickler


@command("results", short_help="Write the results of a run with a name.")
@click.argument("name", shell_complete=run_names)
@click.option(
    "--format",
    "form",
    type=click.Choice(["pickle", "jsonl", "csv"]),
    help="Default: by the ending of --output, else jsonl.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file; default standard output."
)
@click.option("--journal", help="Where the run is, if not in the run directory.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long to wait for calls that somebody runs (default: until they have ended).",
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

    jsonl: a line of JSON for each call: {"result": ...}, or {"error": "..."} for a call that failed
        or has no result yet; NaN and infinity are null. csv: a row for each result, which is a
        record (a dict, a dataclass, a named tuple, a tuple, or one value). pickle: a list, with an
        exception in the place of each missing result; if a script's classes are in it, gridengine
        must be installed where it is loaded.

    The exit status is 1 when there is no such run, or the format cannot hold its results. It is 0
    also when calls have no result; standard error tells how many.

    Examples:
      gridengine results sweep -o sweep.pickle       a list, for pickle.load
      gridengine results sweep --format jsonl | jq .
      gridengine results sweep --format csv -o sweep.csv
    """
    ending = "" if output is None else output.suffix
    form = form or {".pickle": "pickle", ".pkl": "pickle", ".csv": "csv"}.get(ending, "jsonl")
    run = run_named(name, journal=journal)
    seconds = 0.0 if now else timeout
    if seconds != 0 and (who := who_has(run.name, run.path)):
        calls = plural(run.left, "call")
        click.echo(
            f"waiting for {calls} that {who} has; --now takes the results that are there", err=True
        )
    results = run.results(seconds)
    content = WRITERS[form](results)
    if output is None:
        sys.stdout.buffer.write(content)
    else:
        write_file(output, content)
    if words := _missing(run, results):
        click.echo(words, err=True)


def _missing(run: NamedRun, results: Sequence[Any]) -> str:
    """Return how many calls have no result, why, and how they will get one; empty if all have
    results.
    """
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


def _json(result: Any) -> str:
    try:
        failed = isinstance(result, BaseException)
        line = {"error": f"{type(result).__name__}: {result}"} if failed else {"result": result}
        text = json.dumps(line, default=_plain)
    except ConfigurationError:
        raise
    except (TypeError, ValueError):  # a key that is no text, an unsortable set, a circle
        raise _nothing_for(result) from None
    if "NaN" in text or "Infinity" in text:  # Python's json writes them, but they are no JSON
        text = json.dumps(json.loads(text, parse_constant=lambda name: None))
    return text


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


def _csv(results: Sequence[Any]) -> bytes:
    records = [_record(one) for one in results if not isinstance(one, BaseException)]
    columns = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode(errors="backslashreplace")


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


WRITERS: dict[str, Callable[[Sequence[Any]], bytes]] = {
    "jsonl": lambda results: "".join(f"{_json(one)}\n" for one in results).encode(),
    "csv": _csv,
    "pickle": _pickle,
}
