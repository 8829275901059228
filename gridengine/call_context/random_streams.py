"""Streams of random numbers, one for each call of a map with `seed=`. A call's stream is the same
on every machine, beside any other calls, and at every attempt.

The streams are the children of `numpy.random.SeedSequence(seed)`, one for each number of a call.
The number travels as the call's last argument (`with_numbers`, `Seeded`), so that chunks, retries
and named runs carry it along without knowing of it.

During a call the hidden generators of `LIBRARIES` are seeded from its stream. Afterwards they go on
from where they were: later calls without a seed would otherwise draw equal numbers in several
processes. A library that the call itself imports is seeded at that moment; else the first calls of
a process would draw other numbers than later ones.

Files of named runs hold pickles that name `Seeded` and `Seed`: these keep their module and names.

Rejected: importing NumPy for each seeded call, which takes a tenth of a second in each process. And
`numpy.random.set_bit_generator`, which would be quicker than to save a state and to set it back,
but drops the second number of a pair that the legacy generator has kept.

Imported only where a seed is given.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gridengine.arguments import SHOWN
from gridengine.call_context.coroutines import synchronous
from gridengine.call_context.current_call import GVAR, STREAM
from gridengine.errors import ConfigurationError, safe_repr
from gridengine.serialize.payload import FULL, SINGLE
from gridengine.serialize.users_modules import after_import

Number: TypeAlias = int | tuple[int, ...]
"""The number of a call of a map; or, in an executor, those of its map and of the call in it."""


class SeedSequence(Protocol):
    """What is needed of a `numpy.random.SeedSequence`."""

    entropy: Any
    spawn_key: Any
    pool_size: Any
    n_children_spawned: Any


SeedSpec: TypeAlias = int | Sequence[int] | SeedSequence | None


class Seed(Struct, frozen=True):
    """A checked seed: the parts of a `numpy.random.SeedSequence`. The first child has the number
    `first`. `is_inherited`: it comes from the call that submits these calls, not from a user.
    """

    entropy: int | tuple[int, ...]
    spawn_key: tuple[int, ...] = ()
    pool_size: int = 4
    first: int = 0
    is_inherited: bool = False

    def child(self, number: Number) -> Seed:
        """Return the seed of the call, or map, that has this number."""
        first, *more = (number,) if isinstance(number, int) else number
        key = *self.spawn_key, self.first + first, *more
        return replace(self, spawn_key=key, first=0, is_inherited=False)

    def sequence(self) -> Any:
        """Return the `numpy.random.SeedSequence` itself."""
        from numpy.random.bit_generator import SeedSequence  # `numpy.random` may be half imported

        return SeedSequence(self.entropy, spawn_key=self.spawn_key, pool_size=self.pool_size)

    def number(self) -> int:
        """Return a number from 0 to 2**64 - 1 for libraries that take no `SeedSequence`."""
        text = repr((self.entropy, self.spawn_key)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def seed_of(given: Any) -> Seed:
    """Return a user's seed, checked.

    Raises:
        TypeError, ConfigurationError: it is neither a whole number from 0 on, nor a sequence of
            such numbers, nor a `numpy.random.SeedSequence`.
    """
    if isinstance(given, Seed):
        return given
    if hasattr(given, "n_children_spawned"):
        key = tuple(map(operator.index, given.spawn_key))
        return Seed(_entropy(given.entropy), key, given.pool_size, given.n_children_spawned)
    return Seed(_entropy(given))


def _entropy(given: Any) -> int | tuple[int, ...]:
    try:
        if isinstance(given, bool | str | bytes):
            raise TypeError
        try:
            numbers = [operator.index(given)]
        except TypeError:
            numbers = list(map(operator.index, given))
            given = tuple(numbers)
    except TypeError:
        hint = ""
        if hasattr(given, "bit_generator") or hasattr(given, "getrandbits"):
            hint = "; of a generator, give a number that it has drawn"
        raise TypeError(
            "seed must be a whole number, a sequence of them or a numpy.random.SeedSequence, not "
            f"{safe_repr(given, most=SHOWN)}{hint}"
        ) from None
    if any(number < 0 for number in numbers):
        shown = safe_repr(given, most=SHOWN)
        raise ConfigurationError(f"seed must be at least 0, not {shown}")
    return tuple(numbers) if isinstance(given, tuple) else numbers[0]


def with_numbers(form: int, calls: Iterable[Any], numbers: Iterable[Number]) -> Iterator[Any]:
    """Return calls as those of form `STAR`, each with its number as the last argument."""
    numbered = zip(calls, numbers, strict=False)
    return numbered if form == SINGLE else ((*call, number) for call, number in numbered)


class Seeded:
    """A function whose calls have streams of random numbers. The last argument of each call is the
    call's number, and is not passed on to the function.
    """

    def __init__(self, function: Callable[..., Any], seed: Seed) -> None:
        self._function = synchronous(function)
        self._seed = seed
        self.__qualname__ = getattr(function, "__qualname__", None) or type(function).__name__

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        *given, number = arguments
        with RandomStream(self._seed.child(number)):
            return self._function(*given, **keywords)


def takes_number(function: object) -> bool:
    """Return whether the calls of a function, as it travels, have numbers."""
    return Seeded in (type(function), type(getattr(function, "_function", None)))


def without_number(call: Any, form: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call of a `Seeded`, as the pair of the form `FULL`, without its number."""
    positional, named = call if form == FULL else ((call,) if form == SINGLE else call, {})
    return positional[:-1], named


class RandomStream:
    """The stream of random numbers of one call. Within the block, the hidden generators of the
    libraries draw from it.
    """

    def __init__(self, seed: Seed) -> None:
        self.seed = seed
        self._generator: Any = None
        self._maps = itertools.count()
        self._undo: dict[str, Callable[[], object]] = {}

    def generator(self) -> Any:
        """Return the call's `numpy.random.Generator`, the same object each time."""
        if self._generator is None:
            from numpy.random import default_rng

            self._generator = default_rng(self.seed.sequence())
        return self._generator

    def spawn(self) -> Seed:
        """Return the seed of the next calls that the call itself submits."""
        return replace(self.seed.child(next(self._maps)), is_inherited=True)

    def __enter__(self) -> None:
        self._token = STREAM.set(self)
        self._before = GVAR.process_stream
        if GVAR.in_runner and not GVAR.in_own_process:
            GVAR.process_stream = self  # for threads that the call starts
        try:
            for name in LIBRARIES:
                if sys.modules.get(name) is not None:
                    self._seed_library(name)
        except BaseException:  # such as NumPy with another kind of generator, set by the user
            self.__exit__()
            raise
        if len(self._undo) < len(LIBRARIES):
            sys.meta_path.insert(0, self)

    def __exit__(self, *exc_info: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for undo in self._undo.values():
            undo()
        GVAR.process_stream = self._before
        STREAM.reset(self._token)

    def _seed_library(self, name: str) -> None:
        self._undo[name] = LIBRARIES[name](sys.modules[name], self.seed)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find a library that the call imports as the other finders do, to be seeded once it is
        imported. Called by Python's import.
        """
        if name not in LIBRARIES or name in self._undo:
            return None
        finders = [one for one in sys.meta_path if not isinstance(one, RandomStream)]
        found = (one.find_spec(name, path, target) for one in finders)
        spec = next(filter(None, found), None)

        def seed(module: types.ModuleType) -> None:
            for stream in reversed([one for one in sys.meta_path if isinstance(one, RandomStream)]):
                stream._seed_library(name)  # the inner one of several last

        after_import(spec, seed)
        return spec


def _seed_random(module: Any, seed: Seed) -> Callable[[], object]:
    state = random.getstate()
    random.seed(repr((seed.entropy, seed.spawn_key)))
    return lambda: random.setstate(state)


def _seed_numpy(module: Any, seed: Seed) -> Callable[[], object]:
    state = module._rand.get_state(legacy=False)
    module._rand.seed(seed.sequence().generate_state(8))
    return lambda: module._rand.set_state(state)


def _seed_torch(module: Any, seed: Seed) -> Callable[[], object]:
    state = module.get_rng_state()
    module.manual_seed(seed.number())

    def undo() -> None:
        module.seed()  # the generators of all devices, by chance
        module.set_rng_state(state)

    return undo


LIBRARIES: Mapping[str, Callable[[Any, Seed], Callable[[], object]]] = types.MappingProxyType(
    {"random": _seed_random, "numpy.random.mtrand": _seed_numpy, "torch": _seed_torch}
)
"""Libraries with a hidden generator: each function seeds it, and returns one that sets it back."""


def rng() -> Any:
    """Return the `numpy.random.Generator` of the call that this code runs in, the same object each
    time: `numpy.random.default_rng(numpy.random.SeedSequence(seed, spawn_key=(number,)))`.

    Raises:
        ConfigurationError: this code runs in no call with a seed.
        ImportError: NumPy is not installed.
    """
    stream = GVAR.stream
    if stream is None:
        raise ConfigurationError(
            "gridengine.rng() is the generator of a call with a seed, and this code runs in none",
            hint="give the map or executor a seed: gridengine.map(f, xs, seed=1)",
        )
    return stream.generator()
