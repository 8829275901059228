"""What travels by name and what by value, what is copied, and what errors say."""

from __future__ import annotations

import functools
import gc
import io
import linecache
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gridengine.errors import ConfigurationError, PicklingError, RemoteTraceback, WorkerCrashed
from gridengine.serialize import classes, encoding, functions, pickling, unpicklable
from gridengine.serialize.payload import FULL, SINGLE, STAR

LOCK = threading.Lock()


def local_class() -> type:
    class Local:
        def me(self) -> bool:
            return type(self) is Local

    return Local


def through(obj: Any) -> Any:
    return pickling.load(pickling.dump(obj))


# By name, by value


def test_what_can_be_imported_travels_by_name() -> None:
    assert through(functools.reduce) is functools.reduce
    assert through(WorkerCrashed) is WorkerCrashed
    assert len(pickling.dump(pickling.dump_calls)[0]) < 100


def test_a_function_by_value_is_a_new_one_with_only_the_global_variables_it_names() -> None:
    function = through(lambda: FULL)
    assert function() == FULL
    assert set(function.__globals__) <= {
        "FULL",
        "__name__",
        "__package__",
        "__file__",
        "__builtins__",
    }


def test_names_of_attributes_are_not_taken_for_global_variables() -> None:
    assert functions.global_names((lambda x: (x.LOCK, len(SINGLE.y))).__code__) == ("SINGLE", "len")  # type: ignore[attr-defined]


def test_a_class_in_the_same_process_is_the_same_class() -> None:
    cls = local_class()
    assert through(cls) is cls
    assert type(through(cls())) is cls
    assert through(lambda: cls().me())() is True


def test_a_method_hidden_by_a_subclass_stays_the_one_it_was() -> None:
    class Base:
        def who(self) -> str:
            return "base"

    class Sub(Base):
        def who(self) -> str:
            return "sub"

        def base(self) -> Callable[[], str]:
            return super().who

    assert through(Sub().base())() == "base"


def test_an_empty_closure_cell_stays_empty() -> None:
    def outer() -> Callable[[], int]:
        def inner() -> int:
            return later

        if not outer:
            later = 1
        return inner

    with pytest.raises(NameError):
        through(outer())()


def test_the_standard_streams_are_those_of_the_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    payload = pickling.dump(sys.stdout)
    monkeypatch.setattr(sys, "stdout", other := io.StringIO())
    assert pickling.load(payload) is other


def test_what_only_dill_knows_travels_too() -> None:
    assert list(through({1: 2}.keys())) == [1]
    target = local_class()
    assert through([weakref.ref(target), target])[0]() is target


def test_a_class_may_hold_what_only_dill_knows() -> None:
    class Choice:
        keys = {"a": 1}.keys()

    assert through(Choice).keys is Choice.keys


def test_locks_and_files_do_not_arrive_as_others() -> None:
    with Path(__file__).open() as file:
        for obj in (LOCK, threading.RLock(), file):
            with pytest.raises(PicklingError):
                pickling.dump(obj)


def test_many_threads_agree_on_one_class() -> None:
    cls = local_class()
    with ThreadPoolExecutor(8) as pool:
        back = list(pool.map(lambda _: type(through(cls())), range(200)))
    assert set(back) == {cls}


def test_classes_that_nobody_uses_are_forgotten_in_the_end() -> None:
    first = weakref.ref(local_class())
    pickling.dump(first())
    gc.collect()
    assert first() is not None
    for _ in range(classes.KEPT_CLASSES):
        pickling.dump(local_class())
    gc.collect()
    assert first() is None


def run(text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_dill_is_not_imported_until_it_is_needed() -> None:
    run(
        "import sys; from gridengine.serialize.pickling import *\n"
        "class A: pass\n"
        "load(dump([A(), lambda: A, 1, ValueError(2)])); assert 'dill' not in sys.modules\n"
        "dump({}.keys()); assert 'dill' in sys.modules"
    )


def test_plain_pickle_behaves_as_if_dill_were_not_there() -> None:
    pickling.dump({}.keys())
    for obj in (LOCK, lambda: 1, {}.keys()):
        with pytest.raises((TypeError, pickle.PicklingError, AttributeError)):
            pickle.dumps(obj)


# Buffers


def test_large_buffers_of_results_are_not_copied_and_small_ones_are_in_band() -> None:
    large, small = bytearray(encoding.OUT_OF_BAND), bytearray(encoding.OUT_OF_BAND - 1)
    payload = pickling.dump_values([pickle.PickleBuffer(large), pickle.PickleBuffer(small)])
    assert len(payload) == 2
    assert memoryview(payload[1]).obj is large
    assert pickling.load(payload) == [large, small]


def test_an_argument_that_changes_after_it_was_handed_in_arrives_as_it_was() -> None:
    array = bytearray(b"a" * encoding.OUT_OF_BAND)
    payload = pickling.dump_calls([pickle.PickleBuffer(array)])
    array[0] = 0
    assert pickling.load_calls(payload)[0][:1] == b"a"


def test_a_writable_buffer_is_not_copied_when_it_arrives() -> None:
    payload = pickling.dump(pickle.PickleBuffer(bytearray(encoding.OUT_OF_BAND)))
    arrived = bytearray(payload[1])
    back = pickling.load([payload[0], arrived])
    assert memoryview(back).obj is arrived or back is arrived


def test_a_payload_may_be_views_of_a_message() -> None:
    message = b"xx" + bytes(pickling.dump_calls([1, "a"])[0]) + b"yy"
    assert pickling.load_calls([memoryview(message)[2:-2]]) == [1, "a"]


# Errors that name the culprit


class Holder:
    def __init__(self, value: Any) -> None:
        self.model = value


def text_of(dump: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises(PicklingError) as caught:
        dump(*arguments, **options)
    assert caught.value.__cause__ is not None
    return str(caught.value)


@pytest.mark.parametrize(
    ("call", "form", "words"),
    [
        (LOCK, SINGLE, "argument 1 of call 1 (a _thread.lock)"),
        ((1, LOCK), SINGLE, "argument 1 of call 1, at [1] (a _thread.lock)"),
        ((1, LOCK), STAR, "argument 2 of call 1 (a _thread.lock)"),
        ((1, LOCK), None, "argument 2 of call 1 (a _thread.lock)"),
        (((1,), {"key": LOCK}), FULL, "argument 'key' of call 1 (a _thread.lock)"),
        (
            {"a": [0, Holder(LOCK)]},
            None,
            "argument 1 of call 1, at ['a'][1].model (a _thread.lock)",
        ),
    ],
)
def test_an_error_names_the_call_the_argument_and_the_place_in_it(
    call: Any, form: int | None, words: str
) -> None:
    fine: Any = ((1,), {}) if form == FULL else (1,)
    text = text_of(pickling.dump_calls, [fine, call], form=form)
    assert words in text
    assert "cannot pickle '_thread.lock' object" in text


def test_an_error_uses_the_callers_name_for_the_call() -> None:
    assert "argument 1 of job 'train'" in text_of(
        pickling.dump_calls, [LOCK], describe=lambda _: "job 'train'"
    )


def test_an_error_names_the_result() -> None:
    assert "the result of call 1 (a generator)" in text_of(
        pickling.dump_values, [0, (one for one in [])]
    )


def uses_lock() -> object:
    return LOCK


uses_lock.__qualname__ = "nowhere"


def test_an_error_names_the_variable_of_a_function() -> None:
    held = LOCK
    assert "its global variable 'LOCK' (a _thread.lock)" in text_of(
        pickling.dump_function, uses_lock
    )
    assert "its captured variable 'held' (a _thread.lock)" in text_of(
        pickling.dump_function, lambda: held
    )
    assert "argument 1 of the function functools.partial (a _thread.lock)" in text_of(
        pickling.dump_function, functools.partial(len, LOCK)
    )
    assert "its object, at .model (a _thread.lock)" in text_of(
        pickling.dump_function, Holder(LOCK).__init__
    )


def test_a_circle_on_the_way_to_the_culprit_is_no_trap() -> None:
    circle: list[Any] = [LOCK]
    circle.insert(0, circle)
    assert "(a _thread.lock)" in text_of(pickling.dump, circle)


def test_an_object_too_deep_to_pickle_is_an_error_not_a_crash() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert "RecursionError" in text_of(pickling.dump_calls, [deep])


class Node:
    def __init__(self, following: Node | None) -> None:
        self.following = following


def test_what_is_nested_too_deeply_is_told_after_few_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node: Node | None = None
    for _ in range(20_000):
        node = Node(node)
    attempts: list[Any] = []
    really_try = unpicklable.failure_of
    monkeypatch.setattr(
        unpicklable, "failure_of", lambda obj: attempts.append(obj) or really_try(obj)
    )
    text = text_of(pickling.dump_calls, [{"settings": 1, "first": node}])
    assert "argument 1 of call 0, at ['first']" in text
    assert "nested too deeply" in text
    assert len(attempts) < 10
    while node is not None:  # else its end would need as many frames
        node = node.following


class Full:
    def __reduce__(self) -> Any:
        raise MemoryError("full")


def test_a_lack_of_memory_is_no_pickling_error() -> None:
    for dump in (lambda: pickling.dump(Full()), lambda: pickling.dump_calls([Full()])):
        with pytest.raises(MemoryError, match="full"):
            dump()


class NotBack:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_results_that_are_cut_off_are_told_as_such() -> None:
    [body] = pickling.dump_values([1, 2])
    with pytest.raises(PicklingError, match="the results cannot be rebuilt here"):
        pickling.load_values([bytes(body)[:-2]])


def test_what_cannot_be_rebuilt_is_told() -> None:
    (value,), complete = pickling.load_values(pickling.dump_values([NotBack()]))
    assert not complete
    assert isinstance(value.error, PicklingError)
    assert "cannot be rebuilt here: ValueError: invalid literal" in str(value.error)
    with pytest.raises(ValueError, match="invalid literal"):
        pickling.load_calls(pickling.dump_calls([NotBack()]))


# Exceptions


def test_our_own_errors_keep_all_they_know() -> None:
    error = WorkerCrashed(
        "died", host="node7", job="12.3", log="/log", log_tail="end", attempts=["one"], hint="look"
    )
    back = pickling.load_exception(pickling.dump_exception(error))
    assert type(back) is WorkerCrashed
    assert vars(back) == vars(error)
    assert str(back) == str(error)
    assert isinstance(through(ConfigurationError("x")), ValueError)


class Odd(AttributeError):
    def __init__(self, what: str, more: int) -> None:
        super().__init__(f"no {what}", name=what)
        self.more = more


class Named(AttributeError):
    @property
    def name(self) -> str:  # type: ignore[override]
        return "its own"


def raised_by(act: Callable[[], Any]) -> Exception:
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def back(error: BaseException) -> Any:
    return pickling.load_exception(pickling.dump_exception(error))


def test_builtin_exceptions_keep_what_is_not_among_their_arguments() -> None:
    assert back(raised_by(lambda: (3).nothing)).name == "nothing"  # type: ignore[attr-defined]
    assert back(raised_by(lambda: undefined)).name == "undefined"  # type: ignore[name-defined]  # noqa: F821
    missing = raised_by(lambda: exec("import nowhere.at_all"))
    assert (back(missing).name, back(missing).msg) == ("nowhere", "No module named 'nowhere'")
    syntax = raised_by(lambda: compile("a b", "file", "exec"))
    syntax.text = "another"  # type: ignore[attr-defined]
    assert (back(syntax).text, back(syntax).lineno) == ("another", 1)
    leave = SystemExit(1)
    leave.code = 3
    assert back(leave).code == 3
    assert back(raised_by(Path("/nowhere").open)).filename == "/nowhere"
    assert back(raised_by(lambda: "ä".encode("ascii"))).start == 0
    assert (
        back(ExceptionGroup("two", [raised_by(lambda: (3).nothing)])).exceptions[0].name
        == "nothing"
    )  # type: ignore[attr-defined]


def test_exceptions_of_ones_own_keep_what_their_builtin_base_has() -> None:
    odd = back(Odd("colour", 3))
    assert (odd.name, odd.more, str(odd)) == ("colour", 3, "no colour")
    assert back(Named("x")).name == "its own"
    locked = Odd("colour", 3)
    locked.more = LOCK  # type: ignore[assignment]
    assert back(locked).name == "colour"


def test_the_object_that_lacked_an_attribute_comes_when_it_can() -> None:
    assert back(AttributeError("no", name="x", obj=[1])).obj == [1]
    for obj in (LOCK, b"x" * 1_000_000, NotBack()):
        error = back(AttributeError("no", name="x", obj=obj))
        assert (error.name, error.obj) == ("x", None)
    circle = AttributeError("no", name="x")
    circle.obj = [circle]
    assert back(circle).obj[0].name == "x"


def test_the_traceback_begins_with_the_users_frames() -> None:
    space: dict[str, Any] = {}
    ours = Path(pickling.__file__).with_name("runner.py")
    exec(
        compile(
            "def call(f):\n    try: f()\n    except Exception as error: return error", ours, "exec"
        ),
        space,
    )
    error = space["call"](lambda: functools.reduce(lambda a, b: a / b, [1, 0]))
    cause = pickling.load_exception(pickling.dump_exception(error)).__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "runner.py" not in cause.text
    assert "lambda a, b: a / b" in cause.text


def test_an_exception_whose_repr_fails_still_arrives() -> None:
    class Bad:
        lock = LOCK

        def __reduce__(self) -> Any:
            raise TypeError("no")

        def __repr__(self) -> str:
            raise ValueError("no repr")

    error = KeyError("key")
    error.bad = Bad()  # type: ignore[attr-defined]
    back = pickling.load_exception(pickling.dump_exception(error))
    assert type(back) is KeyError
    assert "whose repr raised ValueError" in back.bad  # type: ignore[attr-defined]


class Unhelpful(Exception):
    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def test_an_exception_whose_own_code_fails_still_arrives() -> None:
    error = raised_by(lambda: (_ for _ in ()).throw(Unhelpful("text")))
    came = back(error)
    assert type(came) is Unhelpful
    assert came.args == ("text",)
    assert (
        "Unhelpful (its text cannot be had: KeyError)"
        if sys.version_info < (3, 13)
        else "Unhelpful: text"
    ) in came.__cause__.text
    assert "raised_by" in came.__cause__.text


def test_lines_that_no_file_has_are_noted_and_lines_of_files_are_not() -> None:
    functions.note_source("<nowhere 7>", 3, ["third\n", "fourth\n"])
    functions.note_source("<nowhere 7>", 1, ["first\n"])
    linecache.checkcache()
    assert [linecache.getline("<nowhere 7>", number) for number in (1, 3, 4)] == [
        "first\n",
        "third\n",
        "fourth\n",
    ]
    functions.note_source(__file__, 1, ["wrong\n"])
    assert linecache.getline(__file__, 1).startswith('"""')


def test_an_object_that_is_nested_too_deeply_is_told_in_a_short_text() -> None:
    nested: list[Any] = []
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(PicklingError, match="RecursionError") as caught:
        pickling.dump_calls([nested])
    assert len(str(caught.value)) < 600
