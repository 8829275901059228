from __future__ import annotations

import contextvars
import decimal

import pytest

from gridengine.serialize import context_variables, pickling

OFFERED: contextvars.ContextVar[int] = contextvars.ContextVar("OFFERED")


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process know no token, as another one."""
    known: tuple[dict, dict] = {}, {}  # type: ignore[type-arg]
    monkeypatch.setattr(context_variables, "_tokens", lambda: known)


def test_a_module_s_variable_travels_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = pickling.dump(OFFERED)
    elsewhere(monkeypatch)
    assert pickling.load(payload) is OFFERED


@pytest.mark.parametrize("default", [(), (decimal.Decimal(1),)])
def test_a_script_s_variable_is_the_same_each_time_with_its_default(
    monkeypatch: pytest.MonkeyPatch, default: tuple[decimal.Decimal, ...]
) -> None:
    own: contextvars.ContextVar[decimal.Decimal | None]
    own = (
        contextvars.ContextVar("own", default=default[0])
        if default
        else contextvars.ContextVar("own")
    )
    own.set(None)
    payloads = [pickling.dump(own) for _ in range(2)]
    assert pickling.load(payloads[0]) is own
    elsewhere(monkeypatch)
    there, again = map(pickling.load, payloads)
    assert there is again is not own
    assert there.name == "own"
    assert there.get(*([] if default else ["none"])) == (default[0] if default else "none")
    back = pickling.dump(there)
    monkeypatch.undo()
    assert pickling.load(back) is own


def test_threads_that_load_a_variable_first_at_the_same_time_get_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payload = pickling.dump(contextvars.ContextVar("own", default=1))
    elsewhere(monkeypatch)
    others = list[object]()

    def made(name: str, **options: int) -> contextvars.ContextVar[int]:
        monkeypatch.setattr(context_variables, "ContextVar", contextvars.ContextVar)
        others.append(pickling.load(payload))  # as another thread, in this moment
        return contextvars.ContextVar(name, **options)

    monkeypatch.setattr(context_variables, "ContextVar", made)
    assert pickling.load(payload) is others[0]
