"""What is said of a run with a name."""

from __future__ import annotations

from typing import Any

import pytest

import gridengine
from gridengine.client.options import run_options
from gridengine.errors import ConfigurationError


def test_without_a_name_there_is_no_run() -> None:
    assert run_options({}, gridengine.map) is None
    assert run_options({"name": None}, gridengine.map) is None


@pytest.mark.parametrize("said", [{"resume": False}, {"wait": True}, {"journal": "a.sqlite"}])
def test_what_is_said_of_a_run_without_a_name_is_refused(said: Any) -> None:
    with pytest.raises(ConfigurationError, match="is for a named run, and name= is missing"):
        run_options(said, gridengine.map)


@pytest.mark.parametrize("resume", ["perhaps", 0, 1, None])
def test_what_resume_may_be_is_checked(resume: Any) -> None:
    with pytest.raises(ConfigurationError, match='True, False or "anyway", not'):
        run_options({"name": "a", "resume": resume}, gridengine.map)


@pytest.mark.parametrize("kind", [gridengine.Executor, gridengine.Pool, gridengine.JobDispatcher])
def test_other_keywords_are_refused(kind: Any) -> None:
    words = rf"{kind.__name__}\(\) got an unexpected keyword argument"
    with pytest.raises(TypeError, match=rf"{words} 'nme'; did you mean 'name'\?"):
        kind(nme="a")
    with pytest.raises(TypeError, match=rf"{words} 'timout'; did you mean 'timeout'\?"):
        kind(timout=1)
    with pytest.raises(TypeError, match=rf"{words} 'xyz'; help\(gridengine.{kind.__name__}\)"):
        kind(xyz=1)
