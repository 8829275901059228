"""Whatever is built of builtin values comes back equal, by name or by value, with its types."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gridengine.serialize import encoding, pickling

atoms = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False) | st.text() | st.binary() | st.binary().map(bytearray)
    | st.sampled_from([int, len, pickling.dump, ..., NotImplemented, range(3), slice(1, 2)])
    | st.sampled_from([type(None), KeyError])
)  # fmt: skip
hashable: st.SearchStrategy[Any] = st.deferred(
    lambda: (
        st.integers()
        | st.text()
        | st.binary()
        | st.tuples(hashable, hashable)
        | st.frozensets(hashable, max_size=3)
    )
)
values: st.SearchStrategy[Any] = st.deferred(
    lambda: (
        atoms
        | st.sets(hashable, max_size=3)
        | st.lists(values, max_size=4)
        | st.tuples(values, values)
        | st.dictionaries(hashable, values, max_size=4)
    )
)


class Holder:
    """Not importable by its qualified name, so by value."""

    def __init__(self, value: Any) -> None:
        self.value = value


Holder.__qualname__ = "Nowhere"


def shape(value: Any) -> Any:
    """Return a value with the types of all its parts."""
    if isinstance(value, dict):
        return [(shape(key), shape(one)) for key, one in value.items()]
    if isinstance(value, (list, tuple)):
        return [type(value), *map(shape, value)]
    return type(value), value


@given(values)
def test_any_nested_value_comes_back_equal(value: Any) -> None:
    assert shape(pickling.load(pickling.dump(value))) == shape(value)


@given(st.lists(values, max_size=5))
def test_calls_and_results_come_back_equal(items: list[Any]) -> None:
    assert shape(pickling.load(pickling.dump_calls(items))) == shape(items)
    assert shape(pickling.load_values(pickling.dump_values(items))[0]) == shape(items)


@given(values)
def test_values_within_instances_and_closures_come_back_equal(value: Any) -> None:
    holder, function = pickling.load(pickling.dump([Holder(value), lambda: value]))
    assert type(holder) is Holder
    assert shape(holder.value) == shape(function()) == shape(value)


# Python's own, as __cause__, are no attributes of the user's.
names = st.text(min_size=1).filter(lambda name: not name.startswith("__"))


@given(st.lists(values, max_size=3), st.dictionaries(names, values, max_size=3))
def test_exceptions_come_back_with_arguments_and_attributes(
    arguments: list[Any], attributes: dict[str, Any]
) -> None:
    error = type("Several", (Exception,), {"__init__": lambda self, *, required: None})
    one = error.__new__(error, *arguments)
    vars(one).update(attributes)
    back = pickling.load_exception(pickling.dump_exception(one))
    assert type(back) is error
    assert shape(back.args) == shape(tuple(arguments))
    assert shape(vars(back)) == shape(attributes)


@given(
    st.lists(
        st.binary(min_size=1).map(bytearray) | st.builds(bytearray, st.just(encoding.OUT_OF_BAND)),
        max_size=5,
    )
)
def test_buffers_come_back_whole_and_writable(buffers: list[bytearray]) -> None:
    import numpy

    arrays = [numpy.frombuffer(buffer, dtype="u1") for buffer in buffers]
    payload = pickling.dump(arrays)
    assert len(payload) == 1 + sum(len(buffer) >= encoding.OUT_OF_BAND for buffer in buffers)
    for back, array in zip(pickling.load([bytes(one) for one in payload]), arrays, strict=True):
        assert (back == array).all()
        assert back.flags.writeable
