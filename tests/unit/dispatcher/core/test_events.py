"""What the core is told, and what it has done."""

from __future__ import annotations

from typing import Any, get_args
from unittest.mock import Mock

from gridengine.dispatcher.core import state_machine
from gridengine.dispatcher.core.events import Event, EventBase, Send
from gridengine.dispatcher.io_loop import EffectPerformer
from gridengine.requests import Effect


def test_the_core_handles_every_event_and_nothing_else() -> None:
    assert set(state_machine._HANDLERS) == {*EventBase.__subclasses__(), *get_args(Event)} - {
        EventBase
    }


def test_every_effect_is_performed_and_nothing_else() -> None:
    parts: Any = Mock()
    performer = EffectPerformer(parts, parts, parts, None, {}, parts, parts)
    every = {*Effect.__subclasses__(), *get_args(Effect)} - {Effect}
    assert {Send, *performer._methods} == every
