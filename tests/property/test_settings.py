"""What a settings file may hold, and what memory and times become in batch systems' words."""

from __future__ import annotations

import contextlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gridengine.errors import ConfigurationError
from gridengine.resources import Node, WTime
from gridengine.resources.demand import Demand
from gridengine.schedulers.batch_words import clock_seconds, memory_bytes
from gridengine.schedulers.grid_engine.options import GridEngineWords, OwnArguments, request_for
from gridengine.schedulers.launcher import MARGIN_SECONDS
from gridengine.schedulers.requests import worker_options
from gridengine.schedulers.slurm.commands import EARLY_SECONDS, SIGNAL_SECONDS, SlurmCommands
from gridengine.settings.files import lines_of, parse
from gridengine.settings.schema import setting_types
from gridengine.settings.values import GridEngineSite, SlurmSite

NAMES = st.sampled_from(
    [
        "max_workers",
        "host",
        "grid_engine",
        "slurm",
        "tokens",
        "queue",
        "x",
        '"a.b"',
        "progress",
        "beat_seconds",
    ]
)
VALUES = st.sampled_from(
    [
        "1",
        "-1",
        "1.5",
        "inf",
        "nan",
        "true",
        '"a"',
        "'b'",
        '"""\n"""',
        "[1]",
        "{a = 'b'}",
        "{}",
        "2026-01-01",
        "",
    ]
)
LINES = st.one_of(
    st.builds("{} = {}".format, st.lists(NAMES, min_size=1, max_size=3).map(".".join), VALUES),
    st.builds("[{}]".format, st.lists(NAMES, min_size=1, max_size=3).map(".".join)),
    st.builds("[[{}]]".format, NAMES),
    st.text(max_size=20),
)


@given(st.lists(LINES, max_size=8).map("\n".join))
def test_a_settings_file_is_valid_or_an_error_names_the_file(text: str) -> None:
    lines_of(text)
    with contextlib.suppress(ConfigurationError):
        said = parse(Path("/etc/site.toml"), text)
        assert set(said) <= set(setting_types())
        assert all(one.by.startswith("/etc/site.toml:") for one in said.values())


SLURM = SlurmCommands()
GRID_ENGINE = GridEngineWords(lambda: "smp")


def of_slurm(demand: Demand, name: str) -> str:
    """Return the value of an option that asks for this."""
    return SLURM.said(worker_options(SLURM, [], demand, SlurmSite()))[name][0]


@given(st.integers(1, 64), st.floats(0.01, 4000), st.floats(1, 16))
def test_the_memory_of_all_slots_is_the_requested_memory(
    cores: int, gigabytes: float, factor: float
) -> None:
    request = request_for(
        GRID_ENGINE, OwnArguments(), Demand(Node(cores, gigabytes), factor), GridEngineSite()
    )
    whole = memory_bytes(request.values["h_vmem"]) * cores
    assert 0 <= whole - int(gigabytes * 2**30) * factor < 2 * cores
    megabytes = int(of_slurm(Demand(Node(cores, gigabytes), factor), "--mem").removesuffix("M"))
    assert 0 <= megabytes * 2**20 - int(gigabytes * 2**30) * factor < 2**20 + 1


@given(st.floats(0.1, 10**7))
def test_a_cluster_task_has_all_the_time_of_its_call_and_the_margin(seconds: float) -> None:
    request = request_for(GRID_ENGINE, OwnArguments(), Demand(WTime(seconds)), GridEngineSite())
    assert 0 <= clock_seconds(request.values["h_rt"]) - seconds - MARGIN_SECONDS < 1
    limit = SLURM.parse_time(of_slurm(Demand(WTime(seconds)), "--time"))
    assert limit >= seconds + MARGIN_SECONDS
    assert limit - SIGNAL_SECONDS - EARLY_SECONDS > seconds
