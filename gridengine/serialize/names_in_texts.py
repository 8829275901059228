"""The names that stand in texts which other libraries read as code: formulas ("y ~ double(x)"),
queries ("y > @limit"), SQL ("select * from frame"), expressions for `eval`.

Such a library looks the names up among the global variables of the function that calls it. Nobody
knows which texts the library gets, so every text that reads like code counts. A text of words does
not count, nor does a docstring. A text of one word, which may be a column or a key, counts only in
code that uses `globals`, `eval` or their like. A text that is made when the function runs has no
names here.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Iterator
from typing import Any

from gridengine.serialize.byte_code import codes

LOOKS_UP = frozenset({"globals", "locals", "vars", "eval", "exec", "modules"})
LOADS = frozenset({"LOAD_CONST", "RETURN_CONST"})
NO_TEXT = frozenset(
    {"CALL_KW", "CALL_FUNCTION_KW", "BUILD_CONST_KEY_MAP", "IMPORT_NAME", "MAKE_FUNCTION"}
)
"""Operations whose last argument names keywords, keys, members or a function."""
ONLY_PARSED = 0x400  # of `ast`
MOST_CHARACTERS = 20_000
"""A longer text counts as data."""

WORD = r"[^\W\d]\w*"
FORMULA = rf"(?:[\w)\]]\s*|^\s*)~\s*(?:{WORD}|[01]\b|\()"
SQL = (
    r"^(?:\s*--.*\n)*\s*(?i:select|from|join|with\s+\w+\s+as|insert\s+into|delete\s+from|describe"
    r"|summarize|(?:un)?pivot|explain|create\s+(?:or|table|view|temp\w*))\s|\b(?:FROM|JOIN)\s+\w"
)
MARKED = rf"(?<![\w@])@{WORD}|(?<![\w.]){WORD}(?:\.{WORD})*\("
"""A variable of a query, or a call: these count in any text."""
ONE_WORD = r"[\w.,:/{}%-]*(?:\b@[\w.-]+)?"
"""A word, a path, a template or an address."""


@functools.lru_cache(maxsize=4096)
def names_of_code(code: types.CodeType) -> frozenset[str]:
    """Return the names in the texts of this code, and of code within it, without the names of its
    local variables.
    """
    found, is_looking_up = set[str](), looks_up(code)
    for one in codes(code):
        local = {*one.co_varnames, *one.co_cellvars, *one.co_freevars}
        for text in _texts(one):
            found |= names_of_text(text, is_looking_up) - local
    return frozenset(found)


def looks_up(code: types.CodeType) -> bool:
    """Return whether this code, or code within it, looks up variables by their names."""
    return any(not LOOKS_UP.isdisjoint(one.co_names) for one in codes(code))


def names_of_text(text: str, is_looking_up: bool) -> frozenset[str]:
    """Return all names in a text that reads like code, and the marked names in any other text."""
    return _names_of_text(text, is_looking_up) if len(text) <= MOST_CHARACTERS else frozenset()


@functools.lru_cache(maxsize=512)
def _names_of_text(text: str, is_looking_up: bool) -> frozenset[str]:
    if not is_looking_up and re.fullmatch(ONE_WORD, text):
        return frozenset()
    has_signs = is_looking_up or not re.fullmatch(r"[\w\s]*", text)
    if re.search(FORMULA, text) or re.search(SQL, text) or (has_signs and _is_python(text)):
        return frozenset(re.findall(WORD, text))
    marked = " ".join(re.findall(MARKED, text))
    return frozenset(re.findall(WORD, marked))


def _is_python(text: str) -> bool:
    # Python warns of a backslash that it does not know.
    if "\\" in text:
        return False
    mode = "exec" if re.search("[\n;=]", text.strip()) else "eval"
    try:
        compile(text.strip(), "<text>", mode, ONLY_PARSED, True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def _texts(code: types.CodeType) -> Iterator[str]:
    import dis  # here: as in `byte_code`

    every = [one for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG"]
    for one, after in zip(every, [*every[1:], every[-1]], strict=True):
        # No instruction loads the docstring of a function.
        is_docstring = after.opname == "STORE_NAME" and after.argval == "__doc__"
        if one.opname in LOADS and not is_docstring and after.opname not in NO_TEXT:
            yield from _texts_in(one.argval)


def _texts_in(constant: Any) -> Iterator[str]:
    if isinstance(constant, str):
        yield constant
    elif isinstance(constant, tuple):
        for one in constant:
            yield from _texts_in(one)
