"""The parts that count in the key of a call, for objects whose pickles contain more than their
values.

Some pickles hold an address or a random name (tensors, jitted functions). Others change when the
object is read (caches). Each recipe here returns a reduction that is only digested: nothing is ever
rebuilt from it. Nothing is imported here, since an object's library is loaded.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Reduction: TypeAlias = Any
Recipe: TypeAlias = Callable[[Any], Reduction]
log = logging.getLogger("gridengine")


@functools.lru_cache(maxsize=4096)
def recipe_of(kind: type) -> Recipe | None:
    """Return the recipe for objects of a type, or None. The recipe of a base applies too. A type
    without one that has cached properties gets a recipe that leaves out the cached values.
    """
    for base in kind.__mro__:
        found = _RECIPES.get(f"{base.__module__.partition('.')[0]}.{base.__name__}")
        if found is not None:
            return found
    names = [
        name
        for base in kind.__mro__
        for name, value in vars(base).items()
        if type(value) is functools.cached_property
    ]
    if not names or issubclass(kind, BaseException):
        return None
    return functools.partial(_without_cached, frozenset(names))


def reduced(recipe: Recipe, obj: Any) -> Reduction:
    """Return the reduction of an object by a recipe. Return NotImplemented if the recipe fails, for
    example with another version of the object's library.
    """
    try:
        return recipe(obj)
    except Exception as error:
        log.debug("a %s gets its key from its pickle: %r", type(obj).__qualname__, error)
        return NotImplemented


def _counted(*parts: Any) -> Reduction:
    return tuple, (parts,)


def _without_cached(names: frozenset[str], obj: Any) -> Reduction:
    """Leave out the values of cached properties: they follow from the other attributes."""
    if names.isdisjoint(getattr(obj, "__dict__", ())):
        return NotImplemented
    make, arguments, state, *more = obj.__reduce_ex__(5)
    if type(state) is not dict:
        return NotImplemented
    kept = {name: value for name, value in state.items() if name not in names}
    return make, arguments, kept or None, *more


def _variable(variable: contextvars.ContextVar[Any]) -> Reduction:
    """The name and the default count: a value belongs to a context, and the token is random."""
    from gridengine.serialize.context_variables import default_of  # few need it

    return _counted(variable.name, default_of(variable))


def _tensor(tensor: Any) -> Reduction:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        return NotImplemented  # these lead to others, or to storages
    here = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return _counted(
        type(tensor),
        str(tensor.dtype),
        str(tensor.device),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.requires_grad,
        vars(tensor),
        here.reshape(-1).view(torch.uint8).numpy(),
    )


def _storage(storage: Any) -> Reduction:
    torch = sys.modules["torch"]
    data = torch.empty(0, dtype=torch.uint8).set_(storage.cpu()).numpy()
    return _counted(type(storage), str(storage.device), data)


def _typed_storage(storage: Any) -> Reduction:
    return _counted(type(storage), str(storage.dtype), storage._untyped_storage)


def _jitted(function: Any) -> Reduction:
    """The signatures count if they are fixed: then numba compiles no others."""
    fixed = [] if function._can_compile else [str(one) for one in function.signatures]
    types_of = {name: str(one) for name, one in function.locals.items()}
    options = function.targetoptions
    return _counted(type(function), function.py_func, options, types_of, fixed)


def _jitted_ufunc(ufunc: Any) -> Reduction:
    fixed = ufunc.types if ufunc._frozen else []
    made = ufunc._dispatcher
    return _counted(type(ufunc), made.py_func, made.targetoptions, str(ufunc.identity), fixed)


def _jitted_gufunc(ufunc: Any) -> Reduction:
    fixed = [] if ufunc.is_dynamic else ufunc.types
    made = ufunc.gufunc_builder
    parts = made.py_func, made.targetoptions, ufunc.signature, str(ufunc.identity), fixed
    return _counted(type(ufunc), *parts)


def _jitted_class(cls: Any) -> Reduction:
    made = cls.class_type
    members = {name: str(one) for name, one in made.struct.items()}
    methods = made.jit_methods, made.jit_props, made.jit_static_methods
    return _counted(type(cls), made.class_name, members, *methods)


def _array(array: Any) -> Reduction:
    """A view with gaps counts like the contiguous copy that another process receives."""
    if type(array).__name__ != "ndarray" or array.flags.forc:
        return NotImplemented
    return array.copy(order="C").__reduce_ex__(5)


def _frame(frame: Any) -> Reduction:
    """The values of the columns count. How pandas groups the columns in blocks does not: that
    changes when the frame is used.
    """
    kinds = set(frame.dtypes)
    if len(kinds) == 1 and type(next(iter(kinds))).__module__.startswith("numpy"):
        columns = frame.to_numpy().copy(order="C")
    else:
        columns = [frame.iloc[:, at].array for at in range(frame.shape[1])]
    return _counted(type(frame), frame.columns, frame.index, columns, *_about(frame))


def _series(series: Any) -> Reduction:
    return _counted(type(series), series.name, series.index, series.array, *_about(series))


def _about(frame: Any) -> tuple[Any, ...]:
    own = {name: getattr(frame, name, None) for name in frame._metadata}
    return frame.attrs, frame.flags.allows_duplicate_labels, own


def _plain_array(array: Any) -> Reduction:
    return _counted(type(array), array.to_numpy())


def _dates(array: Any) -> Reduction:
    """Array of dates, times or periods: the array keeps a cache, and its frequency another."""
    return _counted(type(array), str(array.dtype), array.asi8, str(getattr(array, "freq", None)))


def _compressed_matrix(matrix: Any) -> Reduction:
    """The order of the entries does not count: scipy sorts a matrix in place when it is used."""
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return _counted(type(matrix), matrix.shape, matrix.data, matrix.indices, matrix.indptr)


def _coordinate_matrix(matrix: Any) -> Reduction:
    where = getattr(matrix, "coords", None) or (matrix.row, matrix.col)
    return _counted(type(matrix), matrix.shape, matrix.data, where)


def _attributes(*names: str) -> Recipe:
    """Return a recipe by which these attributes count."""
    return lambda obj: _counted(type(obj), *(getattr(obj, name) for name in names))


_RECIPES: Mapping[str, Recipe] = types.MappingProxyType(
    {
        "_contextvars.ContextVar": _variable,
        "numpy.ndarray": _array,
        "torch.Tensor": _tensor,
        "torch.UntypedStorage": _storage,
        "torch.TypedStorage": _typed_storage,
        "torch.OptimizedModule": _attributes("_orig_mod"),
        "numba.Dispatcher": _jitted,
        "numba.DUFunc": _jitted_ufunc,
        "numba.GUFunc": _jitted_gufunc,
        "numba.JitClassType": _jitted_class,
        "pandas.DataFrame": _frame,
        "pandas.Series": _series,
        "pandas.DatetimeTimedeltaMixin": _attributes("name", "array"),
        "pandas.DatetimeLikeArrayMixin": _dates,
        "pandas.NumpyExtensionArray": _plain_array,
        "pandas.PandasArray": _plain_array,
        "scipy._cs_matrix": _compressed_matrix,
        "scipy._coo_base": _coordinate_matrix,
        # The nodes follow from these, and their pickle has addresses.
        "scipy.cKDTree": _attributes("data", "leafsize", "boxsize", "size"),
    }
)
"""Recipes by the package and the name of a type; its module's name changes with versions."""
