"""The modules that a script imports for their effect: plug-ins, registries, accessors.

A function that travels by value takes along the modules that it names. A module that registers
something when it is imported need not be named by any function. So calls import, before they begin,
what the script's top level has imported, as processes of `multiprocessing` that are spawned do:

- each of the user's own modules;
- each third-party module by whose name the script does nothing else: `import plugin` alone.

A third-party module that the script uses by name comes with the functions that name it, and only
with them: to import all of numpy or torch for a call that needs none would delay each first result.
The block below `if __name__ == "__main__":` does not count, nor do imports inside functions.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from itertools import islice

from gridengine.serialize.byte_code import global_names
from gridengine.serialize.users_modules import is_own, is_own_module

TOP_LEVEL_AWAIT = 0x2000  # of `ast`: a notebook's cell may have it
ALL = "*"
LEFT_OUT = frozenset({*sys.stdlib_module_names, "gridengine"})


@functools.lru_cache(maxsize=1)  # and no Python code around it: each map asks
def imports_for_effect(
    main: types.ModuleType, variables: int, modules: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the loaded modules that calls of the script `main` import before they
    begin, in the script's order; and the names of those among them that the script never uses.

    variables, modules: how many variables the script has, which each cell of a notebook adds to,
        and how many modules are loaded. These tell when to look again.
    """
    codes = _code_of(main)
    used = {ALL, *(name for code in codes for name in global_names(code))}
    package = str(vars(main).get("__package__") or "")
    found = dict[str, bool]()
    for name, bound in (one for code in codes for one in _imports(code, package)):
        module, is_used = sys.modules.get(name), not used.isdisjoint(bound)
        if module is not None and (not is_used or is_own_module(module)):
            found[name] = is_used
    return tuple(found), tuple(name for name, is_used in found.items() if not is_used)


def import_all(names: tuple[str, ...]) -> None:
    """Import modules for their effect. One that fails, because this machine does not have it say,
    is left out: the calls may not need it.

    Raises:
        MemoryError: there is no memory for a module.
    """
    for name in names:
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except MemoryError:
                raise
            except (Exception, SystemExit) as error:  # the module's own code may do anything
                import logging

                why = f"{type(error).__name__}: {error}"
                logging.getLogger("gridengine").info("calls begin without %s: %s", name, why)


def _code_of(main: types.ModuleType) -> list[types.CodeType]:
    """Return the code of a script, or of a notebook's cells, as IPython keeps them; empty if there
    is none.
    """
    path, cells = vars(main).get("__file__"), vars(main).get("In")
    if isinstance(path, str):
        found = [_code_of_script(main, path)] if is_own(path) else []
    else:
        known = cells if isinstance(cells, list) else []
        found = [_compiled(cell) for cell in known if isinstance(cell, str)]
    return [code for code in found if code is not None]


@functools.lru_cache(maxsize=1)
def _code_of_script(main: types.ModuleType, path: str) -> types.CodeType | None:
    whole = "<module>", path
    for frame in sys._current_frames().values():
        present: types.FrameType | None = frame
        while present is not None:  # to compile the file again takes longer
            # The code of an `exec` in the script has the same globals, but no file.
            code = present.f_code
            if present.f_globals is vars(main) and (code.co_name, code.co_filename) == whole:
                return code
            present = present.f_back
    from pathlib import Path  # here: a runner does without, and starts the sooner

    try:
        return _compiled(Path(path).read_bytes())
    except OSError:
        return None


@functools.lru_cache(maxsize=4096)
def _compiled(text: str | bytes) -> types.CodeType | None:
    try:
        code: types.CodeType = compile(text, "<script>", "exec", TOP_LEVEL_AWAIT, True)
    except (SyntaxError, ValueError):
        return None
    return code


@functools.lru_cache(maxsize=4096)
def _imports(code: types.CodeType, package: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the modules that the top level of this code imports, each with the variables that get
    the module or its members. Modules of the standard library and of this package are left out.
    """
    import dis  # here: as in `byte_code`

    found: list[tuple[str, tuple[str, ...]]] = []
    every = [one for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG"]
    end_of_main_block = 0
    for index, one in enumerate(every):
        if one.opname not in ("COMPARE_OP", "IMPORT_NAME"):
            continue
        first, second = (before.argval for before in every[index - 2 : index])
        if one.opname == "COMPARE_OP":
            if {first, second} == {"__name__", "__main__"} and "==" in str(one.argval):
                after = every[index + 1]  # no jump where the comparison is a mere value
                if "IF_FALSE" in after.opname:
                    end_of_main_block = after.argval
        elif one.offset >= end_of_main_block:
            name, members = one.argval, second or ("",)
            if first:  # the number of leading dots
                name = f"{package.rsplit('.', first - 1)[0]}.{name}".rstrip(".")
            stores = (at.argval for at in islice(every, index, None) if "STORE_" in at.opname)
            variables = members if members == (ALL,) else tuple(islice(stores, len(members)))
            found.append((name, variables))
            found += ((f"{name}.{one}", (to,)) for one, to in zip(members, variables, strict=True))
    return [one for one in found if one[0].partition(".")[0] not in LEFT_OUT]
