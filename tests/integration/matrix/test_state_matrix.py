"""Scripts made by a program, against the builtin `map` and a spawned executor."""

from __future__ import annotations

import itertools
import json
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.script_driver import MakeScript

LARGE = 200_000
"""How many elements a large value has: pickled, over a megabyte for most kinds."""
FEW_FACES = ("map", "executor.submit", "pool.map")
"""The ways in that are tried with large values, over TCP, and with a name."""
NAMED_KINDS = ("number", "list", "array", "object")
"""What is kept by scripts whose calls have a name: each call opens a file."""

CONTENTS = {
    # kind: (a new value of `n` with `size` elements, a change in place, what a call returns of it)
    "number": ("n", "", "value"),
    "text": ("str(n) * size", "", "(len(value), value[:1])"),
    "list": ("[n] * size", "value[0] -= 1", "(len(value), value[0], value[-1])"),
    "dict": ("dict.fromkeys(range(size), n)", "value[0] -= 1", "(len(value), value[0])"),
    "set": ("set(range(n, n + size))", "value.add(-len(value))", "(len(value), min(value))"),
    "bytes": ("bytearray([n]) * size", "value[-1] ^= 128", "(len(value), value[0], value[-1])"),
    "array": ("np.full(size, n)", "value[size_of(value) // 2] -= 1", "int(value.sum())"),
    "frame": ("pd.DataFrame({'a': np.full(size, n)})", "value.loc[0] -= 1", "int(value.sum().a)"),
    "object": ("Holder(np.full(size, n))", "value.state[-1] -= 1", "int(value.state.sum())"),
    "tree": ("{0: [np.full(size, n), n]}", "value[0][1] -= 1", "int(value[0][0][1]) + value[0][1]"),
}  # fmt: skip

SHARED_LINES = """
import asyncio, dataclasses, functools, json, sys
import numpy as np, pandas as pd
import gridengine
from tests.support.tcp_scheduler import TcpScheduler

class Holder:
    def __init__(self, state): self.state = state
def size_of(value): return len(value)
"""

CONTENT_LINES = """
def make_{kind}(n, size): return {make}
def read_{kind}(value): return {read}
def change_{kind}(value):
    {change}
"""

HOLDERS = {
    # place: (set-up of `state` with value 1, the function, assigning anew, where the value is)
    "global": (
        "{s} = {first}\ndef use_{s}(x): return {read}({s}), x",
        *("use_{s}", "{s} = {new}", "{s}"),
    ),
    "global of a helper": (
        "{s} = {first}\ndef help_{s}(): return {read}({s})\ndef use_{s}(x): return help_{s}(), x",
        *("use_{s}", "{s} = {new}", "{s}"),
    ),
    "beside a large array": (
        "big_{s} = np.zeros(200_000)\n{s} = {first}\n"
        "def use_{s}(x): return {read}({s}), len(big_{s})",
        *("use_{s}", "{s} = {new}", "{s}"),
    ),
    "closure": (
        "def outer_{s}():\n"
        "    {s} = {first}\n"
        "    def use(x): return {read}({s}), x\n"
        "    def assign(value):\n"
        "        nonlocal {s}\n"
        "        {s} = value\n"
        "    return use, assign\n"
        "use_{s}, assign_{s} = outer_{s}()",
        *("use_{s}", "assign_{s}({new})", "use_{s}.__closure__[0].cell_contents"),
    ),
    "default": (
        "def use_{s}(x, value={first}): return {read}(value), x",
        *("use_{s}", "use_{s}.__defaults__ = ({new},)", "use_{s}.__defaults__[0]"),
    ),
    "keyword default": (
        "def use_{s}(x, *, value={first}): return {read}(value), x",
        *("use_{s}", "use_{s}.__kwdefaults__['value'] = {new}", "use_{s}.__kwdefaults__['value']"),
    ),
    "attribute of the function": (
        "def use_{s}(x): return {read}(use_{s}.state), x\nuse_{s}.state = {first}",
        *("use_{s}", "use_{s}.state = {new}", "use_{s}.state"),
    ),
    "kept bound method": (
        "class Class_{s}(Holder):\n"
        "    def use(self, x): return {read}(self.state), x\n"
        "object_{s} = Class_{s}({first})\nkept_{s} = object_{s}.use",
        *("kept_{s}", "object_{s}.state = {new}", "object_{s}.state"),
    ),
    "callable object": (
        "class Class_{s}(Holder):\n"
        "    def __call__(self, x): return {read}(self.state), x\n"
        "object_{s} = Class_{s}({first})",
        *("object_{s}", "object_{s}.state = {new}", "object_{s}.state"),
    ),
    "class attribute": (
        "class Class_{s}:\n    state = {first}\ndef use_{s}(x): return {read}(Class_{s}.state), x",
        *("use_{s}", "Class_{s}.state = {new}", "Class_{s}.state"),
    ),
    "partial": (
        "def reads_{s}(value, x): return {read}(value), x\n"
        "use_{s} = functools.partial(reads_{s}, {first})",
        *("use_{s}", "use_{s} = functools.partial(reads_{s}, {new})", "use_{s}.args[0]"),
    ),
    "item of a dictionary": (
        "box_{s} = {{'state': {first}, 'other': 1}}\n"
        "def use_{s}(x): return {read}(box_{s}['state']), x",
        *("use_{s}", "box_{s}['state'] = {new}", "box_{s}['state']"),
    ),
    "field of a dataclass": (
        "@dataclasses.dataclass\nclass Data_{s}:\n    state: object\n"
        "data_{s} = Data_{s}({first})\ndef use_{s}(x): return {read}(data_{s}.state), x",
        *("use_{s}", "data_{s}.state = {new}", "data_{s}.state"),
    ),
}

PLACES = {
    "local": "gridengine.ProcessScheduler(1)",
    "tcp": "TcpScheduler(1)",
    "named": "gridengine.ProcessScheduler(1)",
}

FACES = """
async def awaited(f):
    return await executor.submit(f, 1)
def of_job(f):
    job = gridengine.Job(target=f, args=(1,), scheduler=scheduler)
    job.start()
    return job.result()
name = {name}
scheduler = {scheduler}
executor = gridengine.Executor(scheduler=scheduler, **({{"name": name}} if name else {{}}))
pool = gridengine.Pool(scheduler=scheduler)
faces = {{
    "map": lambda f: gridengine.map(f, [1], scheduler=scheduler, name=name and name + "-map")[0],
    "executor.map": lambda f: list(executor.map(f, [1]))[0],
    "executor.submit": lambda f: executor.submit(f, 1).result(),
    "await": lambda f: asyncio.run(awaited(f)),
}}
if not name:
    faces |= {{
        "starmap": lambda f: gridengine.starmap(f, [(1,)], scheduler=scheduler)[0],
        "imap": lambda f: next(iter(gridengine.imap(f, [1], scheduler=scheduler))),
        "pool.map": lambda f: pool.map(f, [1])[0],
        "pool.apply": lambda f: pool.apply(f, (1,)),
        "pool.apply_async": lambda f: pool.apply_async(f, (1,)).get(),
        "submit_graph": lambda f: executor.submit_graph({{"a": (f, 1)}}, ["a"])[0].result(),
        "job": of_job,
    }}

def show(script, moment, f, few):
    right = list(map(f, [1]))[0]
    for face, call in faces.items():
        if few and face not in {few}:
            continue
        try:
            got = call(f)
        except Exception as error:
            got = repr(error)
        if got != right:
            print(json.dumps([script, moment, face, repr(got), repr(right)]), flush=True)
    print(json.dumps([script, moment]), flush=True)
"""


def state_script(holder: str, place: str) -> str:
    """Return a script that keeps each kind of value in this holder, small and large, and prints a
    line for each moment at which it has compared, and for each difference.
    """
    name = repr("matrix") if place == "named" else "None"
    faces = FACES.format(name=name, scheduler=PLACES[place], few=FEW_FACES)
    parts = [SHARED_LINES, faces]
    for kind, (make, change, read) in CONTENTS.items():
        parts.append(CONTENT_LINES.format(kind=kind, make=make, change=change or "...", read=read))
    few = place != "local"
    kinds = NAMED_KINDS if place == "named" else CONTENTS
    parts += itertools.chain.from_iterable(_of_kind(holder, kind, few=few) for kind in kinds)
    parts.append("executor.shutdown(); pool.close(); pool.join(); scheduler.close()")
    return "\n".join(parts)


def _of_kind(holder: str, kind: str, *, few: bool) -> Iterator[str]:
    """Yield the lines of one script for each size: set up, call, change, call."""
    setup, function, assign, value = HOLDERS[holder]
    for size in (3, LARGE):
        words = {"s": f"{kind}_{size}", "read": f"read_{kind}", "first": f"make_{kind}(1, {size})"}
        change = f"change_{kind}({value.format(**words)})" if CONTENTS[kind][1] else ""
        steps = {
            "at first": setup.format(**words),
            "changed in place": change,
            "assigned anew": assign.format(**words, new=f"make_{kind}(2, {size})"),
            "anew, then in place": change,
        }
        for moment, line in steps.items():
            if line:
                told = f"{holder}, {kind} of {size}", moment
                yield line
                yield f"show(*{told!r}, {function.format(**words)}, {few or size == LARGE})"


OWN_STATE = {
    # what calls do in their process: lines at the head of the script, and the calls in turn
    "a global that the initializer assigns": (
        "def init(k):\n    global K\n    K = k\ndef f(x): return x + K\ndef g(x): return x * K",
        "f g f g",
    ),
    "a global that the initializer assigns, read by one function alone": (
        "def init(k):\n    global K\n    K = k\ndef f(x): return x\ndef g(x): return x * K",
        "f g g f",
    ),
    "a global that the initializer assigns over the script's": (
        "K = 0\ndef init(k):\n    global K\n    K = k\ndef f(x): return x + K\n"
        "def g(x): return x * K",
        "g f g",
    ),
    "a helper's global that the initializer assigns": (
        "def init(k):\n    global K\n    K = k\ndef help(): return K\ndef f(x): return help()\n"
        "def g(x): return help() + x",
        "f g f",
    ),
    "a method that reads what the initializer assigns": (
        "def init(k):\n    global K\n    K = k\nclass C:\n    def f(self, x): return K + x\n"
        "    def g(self, x): return K * x\n_c = C()\nf = _c.f\ng = _c.g",
        "f g f",
    ),
    "a dictionary as a cache of two functions": (
        "cache = {}\ndef f(x):\n    cache['n'] = cache.get('n', 0) + 1\n    return cache['n']\n"
        "def g(x): return dict(cache)",
        "f f g f g",
    ),
    "a counter": (
        "n = 0\ndef f(x):\n    global n\n    n += 1\n    return n\ndef g(x): return n",
        "f f g f g",
    ),
    "a counter behind a helper": (
        "n = 0\ndef count():\n    global n\n    n += 1\n    return n\ndef f(x): return count()\n"
        "def g(x): return count(), n",
        "f g f g",
    ),
    "a list that calls append to": (
        "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)\n"
        "def g(x): return list(seen)",
        "f g f g",
    ),
    "a large list that calls append to": (
        "seen = list(range(400_000))\ndef f(x):\n    seen.append(x)\n    return len(seen)\n"
        "def g(x): return seen[400_000:]",
        "f g f g",
    ),
    "an array that a call changes": (
        "import numpy as np\ndata = np.zeros(200_000)\ndef f(x):\n    data[x] += 1\n"
        "    return float(data.sum())\ndef g(x): return float(data[1])",
        "f g f g",
    ),
    "a cached helper": (
        "import functools, itertools\nnumbers = itertools.count()\n@functools.lru_cache\n"
        "def costly(x): return next(numbers)\ndef f(x): return costly(x)\n"
        "def g(x): return costly(x), costly(x + 1)",
        "f f g f g",
    ),
    "an attribute of a class": (
        "class C: n = 0\ndef f(x):\n    C.n += 1\n    return C.n\ndef g(x): return C.n",
        "f g f g",
    ),
    "an attribute of an object": (
        "class C:\n    n = 0\n    def count(self):\n        self.n += 1\n        return self.n\n"
        "one = C()\ndef f(x): return one.count()\ndef g(x): return one.n",
        "f g f g",
    ),
    "an attribute of the function": (
        "def f(x):\n    f.n = getattr(f, 'n', 0) + 1\n    return f.n\n"
        "def g(x): return getattr(f, 'n', None)",
        "f f g f g",
    ),
    "a default that is a list": (
        "def f(x, seen=[]):\n    seen.append(x)\n    return len(seen)\ndef g(x): return f(x)",
        "f f g f",
    ),
    "a name that only a call assigns": (
        "def f(x):\n    global late\n    late = x\n    return late\n"
        "def g(x): return globals().get('late')",
        "f g f",
    ),
    "an object made at first use": (
        "made = None\ndef get():\n    global made\n    if made is None: made = []\n"
        "    made.append(1)\n    return len(made)\ndef f(x): return get()\n"
        "def g(x): return get()",
        "f g f g",
    ),
    "a variable of a module beside the script": (
        "import beside\ndef f(x):\n    beside.n += 1\n    return beside.n\n"
        "def g(x): return beside.n",
        "f g f g",
    ),
    "a registry of classes": (
        "kinds = []\nclass Base:\n    def __init_subclass__(cls): kinds.append(cls.__name__)\n"
        "class One(Base): pass\ndef f(x):\n    type('Made', (Base,), {})\n    return list(kinds)\n"
        "def g(x): return list(kinds)",
        "f g f",
    ),
}

LISTED = {
    "a large list that calls append to",
    "an array that a call changes",
    "a cached helper",
    "a default that is a list",
}
"""State that belongs to one function alone, as docs/differences.md says."""

OWN_LINES = """
import concurrent.futures, json, multiprocessing, sys
{setup}

def init_of(): return (init, (3,)) if "init" in globals() else (None, ())

def outcomes(pool, submit):
    got = []
    for name in {calls!r}.split():
        try:
            got.append(submit(pool, globals()[name]))
        except Exception as error:
            got.append(type(error).__name__)
    return got

if __name__ == "__main__":
    import gridengine
    from tests.support.tcp_scheduler import TcpScheduler
    initializer, initargs = init_of()
    more = dict(initializer=initializer, initargs=initargs)
    spawn = multiprocessing.get_context("spawn")
    by_submit = lambda pool, f: pool.submit(f, 1).result()
    by_map = lambda pool, f: list(pool.map(f, [1, 2]))
    by_apply = lambda pool, f: pool.apply(f, (1,))
    for way, submit in (("submit", by_submit), ("map", by_map)):
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn, **more) as pool:
            right = outcomes(pool, submit)
        with gridengine.Executor(1, **more) as pool:
            print(json.dumps(["Executor." + way, outcomes(pool, submit), right]))
        with gridengine.Pool(1, **more) as pool:
            ours = outcomes(pool, by_map if way == "map" else by_apply)
            print(json.dumps(["Pool." + ("map" if way == "map" else "apply"), ours, right]))
        with TcpScheduler(1) as scheduler:
            with gridengine.Executor(scheduler=scheduler, **more) as pool:
                print(json.dumps(["Executor over TCP." + way, outcomes(pool, submit), right]))
"""


def own_state_script(what: str) -> str:
    """Return a script whose calls keep this state in their process; it prints a line for each way
    in, with what calls returned and what they returned in a spawned process.
    """
    setup, calls = OWN_STATE[what]
    return textwrap.dedent(OWN_LINES).format(setup=setup, calls=calls)


LEAST_SCRIPTS = 200


def told(done: subprocess.CompletedProcess[str]) -> Iterator[Any]:
    assert done.returncode == 0, done.stderr
    return (json.loads(line) for line in done.stdout.splitlines())


def test_the_matrix_has_as_many_scripts_as_were_asked_for() -> None:
    kinds = 2 * len(CONTENTS) + 2 * len(CONTENTS) + 2 * len(NAMED_KINDS)
    assert kinds * len(HOLDERS) + len(OWN_STATE) >= LEAST_SCRIPTS


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("holder", HOLDERS)
def test_calls_see_the_state_that_the_builtin_map_sees(
    holder: str, place: str, script: MakeScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDENGINE_RUN_DIRECTORY", str(tmp_path / "runs"))
    lines = list(told(script(state_script(holder, place)).run()))
    assert [line for line in lines if len(line) > 2] == []
    kinds = NAMED_KINDS if place == "named" else CONTENTS
    assert len(lines) == sum(8 if CONTENTS[kind][1] else 4 for kind in kinds)


@pytest.mark.parametrize("what", OWN_STATE)
def test_a_process_keeps_the_state_that_a_spawned_one_keeps(
    what: str, script: MakeScript, tmp_path: Path
) -> None:
    """Where it does not, docs/differences.md says so."""
    (tmp_path / "beside.py").write_text("n = 0\n")
    lines = list(told(script(own_state_script(what)).run()))
    assert len(lines) == 6
    others = [line for line in lines if line[1] != line[2]]
    assert others == ([] if what not in LISTED else lines)
