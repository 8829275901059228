"""Of a pickled list just those items are missing that hold what cannot be rebuilt, whatever they
share and however they are nested.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gridengine.serialize.itemwise_unpickler import Unloadable, load_items


class Thing:
    """Has parts; a bad one cannot be rebuilt."""

    def __init__(self, parts: list[Any], *, bad: bool = False) -> None:
        self.parts = parts
        self.bad = bad

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self.bad:
            raise KeyError("bad")


class Made(Thing):
    """As `Thing`, made by a function and filled by another."""

    def __reduce__(self) -> Any:
        return make, (), (self.parts, self.bad), None, None, fill


class Entry(Thing):
    """A member of sets that may fail when it is asked for its hash."""

    def __hash__(self) -> int:
        if self.bad and vars(self).get("back"):
            raise KeyError("bad")
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, back=True)


def make() -> Made:
    return Made([])


def fill(made: Made, state: tuple[list[Any], bool]) -> None:
    made.parts, made.bad = state
    if made.bad:
        raise KeyError("bad")


def parts_of(one: Any) -> Iterator[Any]:
    if isinstance(one, Thing):
        yield from one.parts
    elif isinstance(one, dict):
        yield from one.values()
    elif isinstance(one, (list, tuple, set)):
        yield from one


def all_in(item: Any) -> list[Any]:
    """Return all that an item leads to, itself included, each once and in the order of a walk."""
    found: dict[int, Any] = {}
    left = [item]
    while left:
        one = left.pop()
        if id(one) not in found:
            found[id(one)] = one
            left += reversed(list(parts_of(one)))
    return list(found.values())


def is_spoilt(item: Any) -> bool:
    return any(isinstance(one, Thing) and one.bad for one in all_in(item))


def shape(item: Any) -> list[Any]:
    """Return the types of all that an item leads to, each with the numbers of its parts: what is
    shared stays shared.
    """
    everything = all_in(item)
    numbers = {id(one): number for number, one in enumerate(everything)}
    return [
        (
            type(one),
            one if isinstance(one, int) else None,
            *[numbers[id(part)] for part in parts_of(one)],
        )
        for one in everything
    ]


def combined(kind: str, parts: list[Any], bad: bool) -> Any:
    if kind == "set":
        return {Entry([], bad=bad)}
    return {
        "list": lambda: parts,
        "tuple": lambda: tuple(parts),
        "dict": lambda: dict(enumerate(parts)),
        "thing": lambda: Thing(parts, bad=bad),
        "made": lambda: Made(parts, bad=bad),
    }[kind]()


@st.composite
def lists(draw: st.DrawFn) -> list[Any]:
    """Return a list of items that share parts, some of which lead back to what they are in."""
    pool: list[Any] = [1, 2, 3000]
    for _ in range(draw(st.integers(1, 12))):
        parts = draw(st.lists(st.sampled_from(pool), max_size=3))
        kind = draw(st.sampled_from(["list", "tuple", "dict", "thing", "made", "set"]))
        pool.append(combined(kind, parts, draw(st.integers(0, 5)) == 0))
    growing = [one for one in pool if type(one) is list]
    for one in draw(st.lists(st.sampled_from(growing), max_size=2)) if growing else ():
        one.append(draw(st.sampled_from(pool)))  # perhaps a circle
    return draw(st.lists(st.sampled_from(pool), max_size=8))


@given(lists())
def test_only_spoilt_items_are_missing_and_the_others_still_share_their_objects(
    items: list[Any],
) -> None:
    back = load_items(pickle.dumps(items, 5), ())
    assert [type(one) is Unloadable for one in back] == [is_spoilt(one) for one in items]
    good = [one for one in items if not is_spoilt(one)]
    assert shape([one for one in back if type(one) is not Unloadable]) == shape(
        pickle.loads(pickle.dumps(good, 5))
    )


@given(lists())
def test_a_list_in_which_nothing_is_spoilt_is_as_the_standard_library_has_it(
    items: list[Any],
) -> None:
    items = [one for one in items if not is_spoilt(one)]
    pickled = pickle.dumps(items, 5)
    assert shape(load_items(pickled, ())) == shape(pickle.loads(pickled))
