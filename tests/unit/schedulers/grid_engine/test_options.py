"""What calls ask for, in Grid Engine's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources import ZERO, Capacity, Cores, GPUs, Memory, Node, Resource, Token, WTime
from gridengine.resources.demand import Demand
from gridengine.schedulers.grid_engine.options import (
    by_shell,
    first_environment,
    parse_environments,
    request_for,
)
from gridengine.schedulers.grid_engine.request import Request
from gridengine.settings.values import GridEngineSite


class Seats(Capacity):
    def _native(self, system: str) -> Sequence[str]:
        return ["-l", f"seats={self.count}"]


class Label(Token):
    """A kind of the user's own, with no words."""


def unasked() -> NoReturn:
    raise AssertionError("no parallel environment was needed")


def grid_engine(
    resources: Resource, factor: float = 1.0, *, site: GridEngineSite | None = None, **own: Any
) -> str:
    given = {
        name: own.pop(name) for name in ("queue", "parallel_environment", "native") if name in own
    }
    request = Request(**given, resources=own)
    find = (lambda: "smp") if (resources.get(Cores) or Cores(1)).N > 1 else unasked
    return request_for(
        request, Demand(resources, factor), site or GridEngineSite(), find
    ).specification()


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (ZERO, ""),
        (Cores(1), ""),
        (Cores(4), "-pe smp 4"),
        (Memory(8), "-l h_vmem=8G"),
        (Node(4, 8), "-l h_vmem=2G -pe smp 4"),
        (Node(3, 1), "-l h_vmem=357913942 -pe smp 3"),
        (Memory(0.5), "-l h_vmem=512M"),
        (WTime("2:00:00"), "-l h_rt=02:01:00"),
        (WTime(36 * 3600), "-l h_rt=36:01:00"),
        (WTime(59.5), "-l h_rt=00:02:00"),
        (WTime(7200, softT=3600), "-l h_rt=02:01:00,s_rt=01:01:00"),
        (WTime(softT=3600), "-l s_rt=01:01:00"),
        (WTime(group="fold"), ""),
        (GPUs(2), "-l gpu=2"),
        (Capacity(3), ""),
        (Label("x"), ""),
        (Seats(2), "-l seats=2"),
        (
            Cores(2) & Memory(1) & WTime(60) & GPUs(1),
            "-l h_vmem=512M,h_rt=00:02:00 -pe smp 2 -l gpu=1",
        ),
    ],
)
def test_each_kind_has_its_words_for_grid_engine(resources: Resource, words: str) -> None:
    assert grid_engine(resources) == words


@pytest.mark.parametrize(
    ("site", "resources", "words"),
    [
        (GridEngineSite(parallel_environment="threads"), Cores(4), "-pe threads 4"),
        (GridEngineSite(memory="mem_free"), Memory(8), "-l mem_free=8G"),
        (GridEngineSite(memory="h_vmem, mem_free"), Memory(8), "-l h_vmem=8G,mem_free=8G"),
        (GridEngineSite(memory=""), Memory(8), ""),
        (GridEngineSite(memory_per_slot=False), Node(4, 8), "-l h_vmem=8G -pe smp 4"),
        (
            GridEngineSite(gpus="-l gpu={per_slot} -q gpu.q"),
            Cores(2) & GPUs(4),
            "-pe smp 2 -l gpu=2 -q gpu.q",
        ),
        (GridEngineSite(tokens={"big": "-q big.q"}), Token("big"), "-q big.q"),
        (GridEngineSite(tokens={"rack": "-q *@@rack"}, queue="all.q"), Token("rack"), "-q *@@rack"),
        (GridEngineSite(queue="all.q", native="-P physics"), ZERO, "-q all.q -P physics"),
    ],
)
def test_a_grid_engine_site_has_its_own_names(
    site: GridEngineSite, resources: Resource, words: str
) -> None:
    assert grid_engine(resources, site=site) == words


@pytest.mark.parametrize("native", ['-N "a -t b"', "-A 'a -o b'", '-ac note="it is -e"'])
def test_what_is_in_quotes_is_no_option(native: str) -> None:
    assert grid_engine(ZERO, native=native) == grid_engine(ZERO, site=GridEngineSite(native=native))


def test_a_quote_that_is_not_closed_is_an_error() -> None:
    for own in ({"native": "-N 'a"}, {"site": GridEngineSite(native="-N 'a")}):
        with pytest.raises(ConfigurationError, match="'a\" cannot be read: No closing quotation"):
            grid_engine(ZERO, **own)


def test_the_scheduler_s_queue_is_used_instead_of_the_site_s() -> None:
    assert grid_engine(ZERO, queue="long.q", site=GridEngineSite(queue="all.q")) == "-q long.q"
    assert grid_engine(ZERO, native="-q long.q", site=GridEngineSite(queue="all.q")) == "-q long.q"


def test_more_memory_is_more_of_what_the_call_or_the_scheduler_asks_for_and_of_nothing_else() -> (
    None
):
    assert grid_engine(Node(2, 2), 3) == "-l h_vmem=3G -pe smp 2"
    own = {"h_vmem": "1.5G", "h_rt": "02:00:00", "mem_free": "500m", "gpu": 1, "site_mem": "1G"}
    site = GridEngineSite(memory="site_mem")
    assert (
        grid_engine(ZERO, 2, site=site, **own)
        == "-l h_vmem=3221225472,h_rt=02:00:00,mem_free=1000000000,gpu=1,site_mem=2147483648"
    )


@pytest.mark.parametrize(
    ("resources", "own", "more"),
    [
        (Memory(8), {"h_vmem": "4G"}, ""),
        (Memory(8), {"native": "-l mem_free=1G,h_vmem=4G"}, "h_vmem"),
        (Cores(4), {"parallel_environment": "smp 2"}, ""),
        (Cores(4), {"parallel_environment": "smp 2-4"}, ""),
        (Cores(1), {"native": "-pe smp 2"}, ""),
        (WTime("2:00:00"), {"h_rt": "01:00:00"}, "02:01:00"),
        (GPUs(1), {"gpu": 1}, ""),
        (Token("big"), {"queue": "all.q"}, ""),
        (Seats(1), {"seats": 1}, ""),
    ],
)
def test_what_scheduler_and_call_both_say_is_an_error_that_names_both(
    resources: Resource, own: dict[str, Any], more: str
) -> None:
    ((name, value),) = own.items()
    with pytest.raises(ConfigurationError) as caught:
        grid_engine(resources, site=GridEngineSite(tokens={"big": "-q big.q"}), **own)
    for word in (repr(resources), f"{name}={value!r}", more):
        assert word in str(caught.value)


def test_a_scheduler_s_parallel_environment_of_the_same_size_serves() -> None:
    assert grid_engine(Node(4, 8), parallel_environment="mpi 4") == "-l h_vmem=2G -pe mpi 4"


def test_a_scheduler_s_longer_time_serves_calls_of_shorter_ones() -> None:
    assert grid_engine(WTime("2:00:00"), h_rt="24:00:00") == "-l h_rt=24:00:00"
    assert grid_engine(WTime("2:00:00"), native="-l h_rt=INFINITY") == "-l h_rt=INFINITY"


@pytest.mark.parametrize(
    ("resources", "site", "named"),
    [
        (
            Token("bg"),
            GridEngineSite(tokens={"big": "-q big.q"}),
            ["Token('bg')", "there are: big", "[grid_engine.tokens]"],
        ),
        (GPUs(3) & Cores(2), GridEngineSite(gpus="-l gpu={per_slot}"), ["GPUs(3)", "2 slots"]),
        (GPUs(3), GridEngineSite(gpus="-l gpu={count}"), ["grid_engine.gpus", "{n}, {per_slot}"]),
    ],
)
def test_what_a_site_has_no_words_for_is_an_error_that_says_what_to_write(
    resources: Resource, site: GridEngineSite, named: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        grid_engine(resources, site=site)
    assert all(word in str(caught.value) for word in named)


MPI = "pe_name            mpi\nslots              999\nallocation_rule    $round_robin\n"


SMP = "pe_name            smp\nslots              999\nallocation_rule    $pe_slots\n"


def test_the_first_parallel_environment_on_one_machine_is_taken() -> None:
    assert first_environment(parse_environments([MPI, SMP, SMP.replace("smp", "other")])) == "smp"


@pytest.mark.parametrize(
    ("texts", "there"), [([MPI], r"mpi \(\$round_robin\)"), ([], "none, or qconf does not tell")]
)
def test_without_one_the_error_lists_what_there_is(texts: list[str], there: str) -> None:
    with pytest.raises(ConfigurationError, match=f"there are: {there}"):
        first_environment(parse_environments(texts))


@pytest.mark.parametrize(
    ("words", "by"),
    [
        ("-shell y", True),
        ("-b y -shell yes -S /bin/sh", True),
        ("-shell y -shell n", False),
        ("-b y", False),
        ("-shell", False),
    ],
)
def test_the_last_option_says_whether_a_shell_runs_the_command(words: str, by: bool) -> None:
    assert by_shell(words.split()) == by
