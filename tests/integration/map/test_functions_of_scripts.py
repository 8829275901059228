"""Scripts, run as `__main__`, that exchange functions, calls and outcomes with another process
which knows nothing of them.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import completed

ROOT = Path(__file__).parents[3]

RUNNER = """
import pickle, sys
from gridengine.serialize.pickling import dump_exception, dump_values, load, load_function

given, answers = sys.stdin.buffer, sys.stdout.buffer
sys.stdout = sys.stderr

def answer(function, calls):
    try:
        function = load_function(function)[0]
        return "values", dump_values([function(*call) for call in load(calls)])
    except BaseException as error:
        return "raised", dump_exception(error)

while True:
    try:
        function, calls = pickle.load(given)
    except EOFError:
        break
    kind, payload = answer(function, calls)
    pickle.dump((kind, list(map(bytes, payload))), answers)
    answers.flush()
"""

PRELUDE = f"""
import pickle, subprocess, sys
from gridengine.serialize.pickling import *

class Runner:
    def __init__(self):
        command = [sys.executable, "-P", "-c", {RUNNER!r}]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, function, *arguments):
        payloads = dump_function(function)[1], dump_calls([arguments])
        pickle.dump(tuple(list(map(bytes, one)) for one in payloads), self.process.stdin)
        self.process.stdin.flush()
        kind, payload = pickle.load(self.process.stdout)
        if kind == "raised":
            raise load_exception(payload)
        [value], _ = load_values(payload)
        return value

    def raised(self, function, *arguments):
        try:
            self(function, *arguments)
        except BaseException as error:
            return error
        raise AssertionError("nothing was raised")

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0
        self.process.stdout.close()

remote = Runner()
"""

Script = Callable[[str], None]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Return a function that runs a text as a script, which fails by an exception; `remote` in it
    calls another process.
    """

    def run(text: str) -> None:
        path = tmp_path / "script.py"
        path.write_text(PRELUDE + textwrap.dedent(text) + "\nremote.close()\n")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = completed([sys.executable, "-P", path], env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    return run


# Functions


def test_functions_that_call_each_other_travel(script: Script) -> None:
    script("""
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n != 0 and even(n - 1)
        assert remote(even, 10) is True and remote(odd, 10) is False
    """)


def test_lambdas_closures_and_comprehensions_travel(script: Script) -> None:
    script("""
        SCALE = 3
        def adder(a):
            def add(b): return a + b
            return add
        def countdown(n):
            def step(k): return [] if k == 0 else [k, *step(k - 1)]
            return step(n)
        assert remote(lambda x: x * SCALE, 2) == 6
        assert remote(adder(2), 3) == 5
        assert remote(countdown, 3) == [3, 2, 1]
        def nested(n): return [SCALE * i for i in range(n) if i in {j for j in range(n)}]
        assert remote(nested, 3) == [0, 3, 6]
        assert remote(lambda n: sum(SCALE * i for i in range(n)), 3) == 9
    """)


def test_defaults_keywords_annotations_and_attributes_travel(script: Script) -> None:
    script("""
        class Unit: pass
        def f(a, b=2, *c, d=4, e: "Unit" = None, **g) -> Unit:
            "Adds."
            return a + b + d + f.extra
        f.extra = 100
        assert remote(f, 1) == 107
        import inspect
        def look(g):
            names = g.__name__, g.__qualname__, g.__module__
            return str(inspect.signature(g)), g.__doc__, *names
        assert remote(look, f) == (str(inspect.signature(f)), "Adds.", "f", "f", "__main__")
    """)


def test_decorated_cached_partial_and_dispatching_functions_travel(script: Script) -> None:
    script("""
        import functools
        def plus_one(f):
            @functools.wraps(f)
            def wrapper(*a, **k): return f(*a, **k) + 1
            return wrapper
        @plus_one
        def same(x): return x
        @functools.cache
        def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
        @functools.singledispatch
        def kind(x): return "other"
        @kind.register
        def _(x: int): return "int"
        assert remote(same, 1) == 2
        assert remote(fib, 50) == 12586269025
        assert remote(functools.partial(same, x=2)) == 3
        assert (remote(kind, 1), remote(kind, "")) == ("int", "other")
    """)


@pytest.mark.promise
def test_functions_of_a_payload_share_their_global_variables(script: Script) -> None:
    script("""
        count, seen = 0, []
        class Counter:
            def up(self):
                global count
                count += 1
                seen.append(count)
        def f():
            Counter().up(); Counter().up()
            return count, seen
        assert remote(f) == (2, [1, 2])
    """)


@pytest.mark.promise
def test_the_version_that_was_submitted_is_the_version_that_runs(script: Script) -> None:
    script("""
        SCALE = 1
        def f(x): return x * SCALE
        first = dump_function(f)[1]
        SCALE = 2
        second = dump_function(f)[1]
        loaded = [load_function(one)[0] for one in (first, second, first)]
        assert [function(10) for function in loaded] == [10, 20, 10]
    """)


def test_a_function_has_the_same_digest_each_time(script: Script) -> None:
    script("""
        import random
        class Point:
            def norm(self): return random.random()
        def f(x, y=(1, "a")): return Point().norm() + len([z for z in x])
        assert len({(dump_function(f)[0], f(range(9)) and None) for _ in range(50)}) == 1
    """)


# Classes


def test_instances_come_back_as_instances_of_the_callers_own_class(script: Script) -> None:
    script("""
        class Base:
            def __init__(self, x): self.x = x
            def area(self): return self.x
        class Sub(Base):
            def __init__(self, x, y): super().__init__(x); self.y = y
            def area(self): return super().area() + self.y
            @property
            def double(self): return 2 * self.x
            @classmethod
            def make(cls): return cls(7, 8)
            @staticmethod
            def three(): return 3
        def f(s):
            assert isinstance(s, Sub) and isinstance(s, Base)
            assert s.area() == 3 and s.double == 2 and Sub.three() == 3
            return [s, Sub.make(), Base(1), Sub, {"in": (Sub(1, 2),)}]
        back = remote(f, Sub(1, 2))
        assert [type(one) for one in back[:3]] == [Sub, Sub, Base]
        assert back[3] is Sub and type(back[4]["in"][0]) is Sub
        assert back[1].area() == 15 and remote(Sub(1, 2).area) == 3 and remote(Sub.make).x == 7
    """)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="its syntax is of Python 3.12")
def test_type_statements_and_type_parameters_travel_though_they_lead_back_to_themselves(
    script: Script,
) -> None:
    script("""
        from typing import Callable
        type Json = dict[str, Json] | list[Json] | str
        type Number = int | float
        type Pair[T] = tuple[T, T]
        type Tree[T] = T | list[Tree[T]]
        type Unknown = NameForTheTypeCheckerAlone
        class Node[T: Node]:
            def first[**P](self, f: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
                return f(*args, **kwargs)
        class Row[*Ts]:
            pass
        def both[T: (int, str), U: Number](x: T, y: U) -> tuple[T, U]:
            return x, y
        def f(x: Number, y: Unknown) -> Json:
            t, u = both.__type_params__
            assert t.__constraints__ == (int, str) and u.__bound__ is Number
            assert both.__annotations__["x"] is t
            assert Node.__type_params__[0].__bound__ is Node and Node().first(int, "3") == 3
            assert f.__annotations__["x"] is Number
            assert Json.__value__.__args__[0].__args__[1] is Json
            assert Number.__value__ == int | float and Json.__module__ == "__main__"
            assert Pair.__value__.__args__[0] is Pair.__type_params__[0]
            assert Pair[int].__args__ == (int,)
            assert Tree.__value__.__args__[1].__args__[0].__origin__ is Tree
            assert len(Tree.__type_params__) == 1
            try:
                Unknown.__value__
            except NameError:
                return both("a", x), Node, Row[int, str]
        back = remote(f, 1, None)
        assert back[0] == ("a", 1) and back[1] is Node and back[2].__origin__ is Row
    """)


@pytest.mark.skipif(
    sys.version_info < (3, 13), reason="variables have defaults from Python 3.13 on"
)
def test_the_defaults_of_type_parameters_travel(script: Script) -> None:
    script("""
        def f[T: int = bool, U = str, *Ts = *tuple[int, int], **P = [int]](x: T) -> U: ...
        def defaults():
            return [one.__default__ for one in f.__type_params__]
        assert remote(defaults) == defaults() and defaults()[:2] == [bool, str]
    """)


def test_dataclasses_named_tuples_slots_and_generics_keep_their_class(script: Script) -> None:
    script("""
        import collections, dataclasses, typing
        T = typing.TypeVar("T")
        @dataclasses.dataclass
        class D:
            x: int
            y: list = dataclasses.field(default_factory=list)
            z: typing.ClassVar[int] = 3
        @dataclasses.dataclass(frozen=True, slots=True, order=True)
        class F:
            x: int
        class N(typing.NamedTuple):
            a: int
            b: str = "b"
            def both(self): return f"{self.a}{self.b}"
        C = collections.namedtuple("C", "a b", defaults=[2])
        class S:
            __slots__ = ("a", "__weakref__")
            def __init__(self, a): self.a = a
            def __eq__(self, other): return self.a == other.a
        class G(typing.Generic[T]):
            def __init__(self, v: T): self.v = v
            def __eq__(self, other): return self.v == other.v
        class TD(typing.TypedDict):
            a: int
        for one in (D(1), F(1), N(1), C(1), S(1), G(1)):
            def compare(other): return [other, one, isinstance(other, type(one)), other == one]
            back = remote(compare, one)
            assert back == [one, one, True, True], back
            assert type(back[0]) is type(back[1]) is type(one), back
        def change(d): return dataclasses.replace(d, x=9), dataclasses.asdict(d), D(4).y
        assert remote(change, D(1)) == (D(9), {"x": 1, "y": []}, [])
        def make(): return N(1).both(), N(1)._replace(a=2), C(1).b, F(1) < F(2), TD(a=1)
        assert remote(make) == ("1b", N(2), 2, True, {"a": 1})
    """)


def test_members_of_enumerations_are_the_callers_own(script: Script) -> None:
    script("""
        import enum
        class Planet(enum.Enum):
            EARTH = (1, 2); MARS = (3, 4); TERRA = (1, 2)
            def __init__(self, mass, radius): self.mass = mass
            def here(self): return self is Planet.EARTH
            @classmethod
            def first(cls): return cls.EARTH
        class Labelled(enum.Enum):
            A = (1, "one")
            def __new__(cls, value, label):
                one = object.__new__(cls)
                one._value_, one.label = value, label
                return one
        class Mode(enum.Flag):
            R = enum.auto(); W = enum.auto(); RW = R | W
        class Level(enum.IntEnum):
            LOW = 1; HIGH = 2
        class Word(enum.StrEnum):
            A = enum.auto()
        for one in (Planet.EARTH, Planet.TERRA, Labelled.A, Mode.RW, Mode.R, Level.HIGH, Word.A):
            other, again, same, members = remote(lambda m: [m, one, m is one, list(type(m))], one)
            assert other is again is one and same and members == list(type(one)), one
        def look():
            same = Planet.TERRA is Planet.EARTH
            return [Planet.EARTH.here(), Planet.first(), Planet.MARS.mass, same]
        assert remote(look) == [True, Planet.EARTH, 3, True]
        assert remote(lambda: [Labelled.A.label, Labelled(1)]) == ["one", Labelled.A]
        assert remote(lambda: Mode.R | Mode.W) is Mode.RW
    """)


def test_abstract_classes_metaclasses_and_registering_bases_work(script: Script) -> None:
    script("""
        import abc, typing
        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self): ...
        class Square(Shape):
            def area(self): return isinstance(self, Shape)
        class Meta(type):
            made = {}
            def __new__(meta, name, bases, body):
                cls = super().__new__(meta, name, bases, body)
                meta.made[name] = cls
                return cls
        class Parent(metaclass=Meta):
            def names(self): return sorted(Meta.made)
        class Child(Parent):
            def own(self): return Meta.made["Child"] is Child and self.names()
        class Plugin:
            kinds = {}
            def __init_subclass__(cls, *, kind, **rest):
                super().__init_subclass__(**rest)
                Plugin.kinds[kind] = cls
        class A(Plugin, kind="a"):
            def registered(self): return Plugin.kinds["a"] is A
        @typing.runtime_checkable
        class Named(typing.Protocol):
            def names(self) -> list: ...
        assert remote(lambda: Square().area()) is True
        assert type(remote.raised(lambda: Shape())) is TypeError
        assert remote(lambda: Child().own()) == ["Child", "Parent"]
        assert remote(lambda c: c.own(), Child()) == ["Child", "Parent"]
        assert remote(lambda: A().registered()) is True
        assert remote(lambda: (isinstance(Child(), Named), isinstance(1, Named))) == (True, False)
    """)


def test_an_importable_base_whose_hook_wants_keywords_is_no_obstacle(script: Script) -> None:
    script("""
        import sys, pathlib
        hook = "    def __init_subclass__(cls, *, kind, **rest):\\n        cls.kind = kind\\n"
        pathlib.Path("plugins.py").write_text("class Base:\\n" + hook)
        sys.path.append(".")
        import plugins
        class Mine(plugins.Base, kind="k"):
            def show(self): return self.kind, isinstance(self, plugins.Base)
        def f():
            return Mine().show()
        remote(lambda: sys.path.append("."))
        assert remote(f) == ("k", True)
    """)


def test_local_classes_are_the_callers_own(script: Script) -> None:
    script("""
        def make():
            class Local:
                def same(self): return type(self) is Local
            return Local
        one, other = make(), make()
        back = remote(lambda l: [l, one(), other(), l.same(), isinstance(other(), one)], one())
        assert [type(l) for l in back[:3]] == [one, one, other] and back[3:] == [True, False]
    """)


def test_a_class_made_on_one_runner_is_one_class_at_home_and_on_another_runner(
    script: Script,
) -> None:
    script("""
        def make():
            class There:
                def hello(self): return "hello"
            return There()
        there = remote(make)
        assert there.hello() == "hello"
        second = Runner()
        back = second(lambda t: (t, type(t)(), t.hello()), there)
        assert type(back[0]) is type(back[1]) is type(there) and back[2] == "hello"
        second.close()
    """)


def test_a_class_is_made_once_and_keeps_its_state_on_a_runner(script: Script) -> None:
    script("""
        class Model:
            cache = {}
            def put(self, key):
                Model.cache[key] = True
                return sorted(Model.cache)
        assert remote(lambda m: m.put("a"), Model()) == ["a"]
        assert remote(lambda m: (m.put("b"), Model is type(m))[0], Model()) == ["a", "b"]
    """)


def test_a_class_whose_definition_changed_is_brought_up_to_date(script: Script) -> None:
    script("""
        import numpy
        SCALE = 1
        class Model:
            gain = 10
            def value(self): return self.gain * SCALE
            def old(self): return 1
        f = lambda m: (m.value(), hasattr(m, "old"), hasattr(m, "new"))
        model = Model()
        assert remote(f, model) == (10, True, False)
        SCALE = 2
        assert remote(f, model) == (20, True, False)
        Model.gain = 20
        Model.new = lambda self: 2
        del Model.old
        assert remote(f, model) == (40, False, True)
    """)


def test_results_do_not_carry_the_definitions_of_the_callers_classes(script: Script) -> None:
    script("""
        class Big:
            table = bytes(100_000)
        def f(big):
            from gridengine.serialize.pickling import dump_values
            return len(dump_values([big])[0])
        assert len(dump_calls([Big()])[0]) > 100_000
        assert remote(f, Big()) < 1_000
    """)


# Exceptions


@pytest.mark.promise
def test_exceptions_arrive_as_themselves_however_they_travel(script: Script) -> None:
    script("""
        import dataclasses, json
        class Several(Exception):
            def __init__(self, a, b):
                super().__init__(f"{a} and {b}")
                self.a, self.b = a, b
        class File(OSError):
            def __init__(self, path, number, *, more):
                super().__init__(number, "bad", path)
                self.more = more
        @dataclasses.dataclass(frozen=True)
        class Frozen(Exception):
            text: str
            n: int
        class Slotted(Exception):
            __slots__ = ("a",)
            def __init__(self, a, b): self.a = a
        def throw(error): raise error
        def facts(error):
            names = ("errno", "filename", "code", "name", "path", "start", "object", "a", "value")
            found = [getattr(error, name, None) for name in names]
            return type(error), error.args, str(error), vars(error), found
        for error in (
            Several(1, 2), File("p", 5, more=3), Slotted(1, 2), SystemExit(3), KeyError("k"),
            StopIteration(4), FileNotFoundError(2, "none", "file"), KeyboardInterrupt(),
            UnicodeDecodeError("utf8", b"abc", 1, 2, "why"), ImportError("m", name="n", path="p"),
            json.JSONDecodeError("m", "doc", 1),
        ):
            error.add_note("noted")
            wanted = facts(error)
            assert facts(remote.raised(throw, error)) == wanted
            assert facts(remote(lambda x: {"in": [x]}, error)["in"][0]) == wanted
            assert facts(remote(lambda: error)) == wanted
        assert facts(remote.raised(throw, Frozen("t", 1))) == facts(Frozen("t", 1))
        group = remote.raised(throw, ExceptionGroup("g", [Several(1, 2), ValueError(3)]))
        assert type(group) is ExceptionGroup
        assert type(group.exceptions[0]) is Several and group.exceptions[0].b == 2
    """)
