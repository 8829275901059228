"""Errors of calls that lack a global variable of the script, because only a text names it."""

from __future__ import annotations

import re
import sys
import types

from gridengine.errors import text_of
from gridengine.serialize.exceptions import note_on
from gridengine.serialize.users_modules import parts_of

MISSING = r"(?i)\bnot (?:been )?(?:defined|found|exist)|\b(?:undefined|unknown|no such)\b"
NAMED = r"""['"`](\w+)['"`]|(?i:\b(?:name|table|relation|variable|function))\s+(\w+)"""
OTHERS = OSError, ImportError, LookupError, AttributeError
"""Errors of other things that may be missing."""


def note_on_left_behind(error: BaseException) -> None:
    """Note on an error which says that a name is missing, such as a `NameError` or the error of a
    query, that the script has a variable of this name.
    """
    if isinstance(error, OTHERS):
        return
    notes = error.__dict__.get("__notes__")
    text = "\n".join([text_of(error) or "", *map(str, notes if isinstance(notes, list) else ())])
    if re.search(MISSING, text):
        main = sys.modules.get("__main__")
        names = parts_of(main) if isinstance(main, types.ModuleType) else {}
        found = [one or other for one, other in re.findall(NAMED, text)]
        name = next((one for one in found if one in names and not one.startswith("__")), None)
        if name is not None:
            note_on(
                error,
                [
                    f"(the script has a variable {name}: calls get the variables that their "
                    "function's code names, and up to 1 MB of each that a text in it names. Name "
                    f"{name} in the code too, or pass it to the function as an argument)"
                ],
            )
