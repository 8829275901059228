"""What a cluster task asks for, in Grid Engine's words, and which of its limits it reached."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gridengine.errors import ConfigurationError, OutOfMemory, TimeoutError
from gridengine.resources import (
    ZERO,
    Capacity,
    Cores,
    GPUs,
    Memory,
    Node,
    Nodes,
    Ranks,
    Resource,
    Token,
    WTime,
)
from gridengine.resources.demand import Demand
from gridengine.schedulers import GridEngineScheduler
from gridengine.schedulers.grid_engine.drmaa import GRID_ENGINE, SLURM, System, system_of
from gridengine.schedulers.grid_engine.options import (
    GridEngineWords,
    OwnArguments,
    TaskOptions,
    by_shell,
    first_environment,
    parse_environments,
    request_for,
    words_for,
)
from gridengine.schedulers.requests import own_options
from gridengine.settings.values import GridEngineSite, SlurmSite


def request(native: str = "", *, site: GridEngineSite | None = None, **given: Any) -> TaskOptions:
    words = GridEngineWords(unasked)
    return TaskOptions.of(words, words.completed(own_options(words, given, native)), site)


def test_resources_become_one_l_option() -> None:
    assert (
        request(h_vmem="10G", h_rt=7200, gpu=True, host=False).native
        == "-l h_vmem=10G,h_rt=7200,gpu=true,host=false"
    )


def test_queue_parallel_environment_and_native_follow_the_resources() -> None:
    given = request(" -P physics ", queue="all.q", parallel_environment="smp 4", gpu=1)
    assert given.native == "-l gpu=1 -q all.q -pe smp 4 -P physics"


@pytest.mark.parametrize(
    ("usage", "environment", "fault"),
    [
        ({"ru_wallclock": "61.0", "maxvmem": "1000.0"}, None, TimeoutError),
        ({"ru_wallclock": "5.0", "maxvmem": str(2**30)}, None, OutOfMemory),
        ({"ru_wallclock": "5.0", "maxvmem": str(2**30)}, "smp 2", None),
        ({"ru_wallclock": "5.0", "maxvmem": str(2**31)}, "smp 2", OutOfMemory),
        ({"ru_wallclock": "5.0", "maxvmem": str(2**31)}, "smp 2-8", OutOfMemory),
        ({"ru_wallclock": "5.0", "maxvmem": "1000.0"}, None, None),
        ({}, None, None),
    ],
)
def test_the_limit_that_a_killed_task_reached_is_told_from_its_usage(
    usage: dict[str, str], environment: str | None, fault: type[Exception] | None
) -> None:
    own = {"parallel_environment": environment} if environment else {}
    assert request(h_rt="00:01:00", h_vmem="1G", **own).fault(usage) is fault


def test_memory_that_is_not_counted_per_slot_is_one_limit_for_all() -> None:
    site = GridEngineSite(memory_per_slot=False)
    asked = request(site=site, parallel_environment="smp 2", h_vmem="1G")
    assert asked.fault({"ru_wallclock": "5.0", "maxvmem": str(2**30)}) is OutOfMemory


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"h_vmem": ["10G"]}, TypeError),
        ({"h_vmem": "10 G"}, ConfigurationError),
        ({"h_vmem": "10G,h_rt=1"}, ConfigurationError),
        ({"queue": 3}, TypeError),
        ({"queue": "all.q -now y"}, ConfigurationError),
        ({"parallel_environment": "smp four"}, ConfigurationError),
        ({"parallel_environment": ("smp", 4)}, TypeError),
        ({"native": None}, TypeError),
        ({"max_workers": 0}, ConfigurationError),
        ({"max_workers": "4"}, TypeError),
        ({"jobs_per_worker": 0}, ConfigurationError),
        ({"prologue": [1]}, TypeError),
        ({"environment": ["A=1"]}, TypeError),
        ({"environment": {"A": 1}}, TypeError),
        ({"environment": {"A B": "1"}}, ConfigurationError),
        ({"python": Path("/usr/bin/python3")}, TypeError),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(
    given: dict[str, object], error: type[Exception]
) -> None:
    ((name, value),) = given.items()
    with pytest.raises(error) as caught:
        GridEngineScheduler(**given)  # type: ignore[arg-type]
    assert name in str(caught.value)
    text = repr(next(iter(value)) if isinstance(value, (dict, list)) else value).strip("'")
    assert text in str(caught.value)


class Seats(Capacity):
    def native_options(self, system: str) -> Sequence[str]:
        return ["-l", f"seats={self.count}"]


class Label(Token):
    """A kind of the user's own, with no words."""


def unasked() -> NoReturn:
    raise AssertionError("no parallel environment was needed")


def grid_engine(
    resources: Resource, factor: float = 1.0, *, site: GridEngineSite | None = None, **own: Any
) -> str:
    find = (lambda: "smp") if (resources.get(Cores) or Cores(1)).N > 1 else unasked
    given = OwnArguments(own, own.pop("native", ""))
    site = site or GridEngineSite()
    return request_for(GridEngineWords(find), given, Demand(resources, factor), site).native


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
def test_quoted_text_is_no_option(native: str) -> None:
    assert grid_engine(ZERO, native=native) == grid_engine(ZERO, site=GridEngineSite(native=native))


def test_native_options_arrive_unchanged() -> None:
    native = """-ac note="two words",path=a\\b -N 'a b' -A a\\"b -q *@@rack"""
    assert grid_engine(ZERO, native=native) == native
    assert asked({"native": native}, system=TORQUE) == native


def test_a_quote_that_is_not_closed_is_an_error() -> None:
    for own in ({"native": "-N 'a"}, {"site": GridEngineSite(native="-N 'a")}):
        with pytest.raises(ConfigurationError, match="'a\" cannot be read: No closing quotation"):
            grid_engine(ZERO, **own)


def test_the_scheduler_s_queue_is_used_instead_of_the_site_s() -> None:
    assert grid_engine(ZERO, queue="long.q", site=GridEngineSite(queue="all.q")) == "-q long.q"
    assert grid_engine(ZERO, native="-q long.q", site=GridEngineSite(queue="all.q")) == "-q long.q"


def test_more_memory_raises_only_the_options_that_the_call_or_the_scheduler_gives() -> None:
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
        (Memory(8), {"native": "-l mem_free=1G,h_vmem=4G"}, "-l h_vmem=4G"),
        (Cores(4), {"parallel_environment": "smp 2"}, ""),
        (Cores(4), {"parallel_environment": "smp 2-4"}, ""),
        (Cores(1), {"native": "-pe smp 2"}, ""),
        (WTime("2:00:00"), {"h_rt": "01:00:00"}, ""),
        (GPUs(1), {"gpu": 1}, ""),
        (Token("big"), {"queue": "all.q"}, ""),
        (Seats(1), {"seats": 1}, ""),
    ],
)
def test_an_option_of_scheduler_and_call_is_an_error_that_names_both(
    resources: Resource, own: dict[str, Any], more: str
) -> None:
    said = request(**own).native
    with pytest.raises(ConfigurationError) as caught:
        grid_engine(resources, site=GridEngineSite(tokens={"big": "-q big.q"}), **own)
    for word in (repr(resources), f"{more or said} of the scheduler"):
        assert word in str(caught.value)


def test_a_scheduler_s_parallel_environment_of_the_same_size_serves() -> None:
    assert grid_engine(Node(4, 8), parallel_environment="mpi 4") == "-l h_vmem=2G -pe mpi 4"


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (Ranks(32), "-pe mpi 32"),
        (Ranks(1) & Cores(4), "-pe mpi 4"),
        (Ranks(8) & Cores(2) & Memory(3), "-l h_vmem=1536M -pe mpi 16"),
    ],
)
def test_ranks_are_slots_of_the_parallel_environment_that_is_named(
    resources: Resource, words: str
) -> None:
    slots = words.rpartition(" ")[2]
    assert grid_engine(resources, site=GridEngineSite(mpi_environment="mpi")) == words
    assert grid_engine(resources, parallel_environment="mpi") == words
    assert grid_engine(resources, parallel_environment=f"mpi {slots}") == words


def test_an_environment_without_slots_gets_those_of_the_call() -> None:
    assert grid_engine(ZERO, parallel_environment="smp") == "-pe smp 1"
    assert grid_engine(Node(4, 8), parallel_environment="smp") == "-l h_vmem=2G -pe smp 4"


@pytest.mark.parametrize(
    ("resources", "own", "words"),
    [
        (Ranks(8), {}, r"Ranks\(8\) wants a parallel environment .* none is named"),
        (Nodes(2), {"parallel_environment": "mpi"}, "no words for a number of nodes"),
        (
            Ranks(8) & Cores(2),
            {"parallel_environment": "mpi 8"},
            r"Ranks\(8\) of a call and -pe mpi 8 of the scheduler say different numbers",
        ),
    ],
)
def test_ranks_that_grid_engine_cannot_be_asked_for_are_an_error(
    resources: Resource, own: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        grid_engine(resources, **own)


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
def test_a_request_without_site_words_is_an_error_that_names_the_setting(
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
def test_without_one_the_error_lists_the_existing_ones(texts: list[str], there: str) -> None:
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


SLURM_HERE = system_of("SLURM 22.05.8", "slurm-drmaa 1.1.6")


TORQUE = system_of("Torque 6.1.2", "PBS DRMAA 1.0.19")


@pytest.mark.parametrize(
    ("name", "implementation", "kind"),
    [
        ("SGE 8.1.9", "SGE 8.1.9", GRID_ENGINE),
        ("UGE 8.6.7", "", GRID_ENGINE),
        ("GE 6.2u5", "", GRID_ENGINE),
        ("OGS/GE 2011.11", "", GRID_ENGINE),
        ("Univa Grid Engine", "", GRID_ENGINE),
        ("SLURM 22.05.8", "slurm-drmaa 1.1.6", SLURM),
        ("", "PSNC DRMAA for SLURM 1.1.6", SLURM),
        ("Torque 6.1.2", "PBS DRMAA 1.0.19", "torque"),
        ("Condor", "Condor", "condor"),
        ("LSF 10.1", "lsf-drmaa, a page of its own", "lsf"),
        ("", "", ""),
    ],
)
def test_a_system_is_known_by_how_its_library_names_it(
    name: str, implementation: str, kind: str
) -> None:
    assert system_of(name, implementation).kind == kind


def test_a_system_reads_as_its_name_and_its_library_s() -> None:
    assert str(SLURM_HERE) == "SLURM 22.05.8 (slurm-drmaa 1.1.6)"
    assert str(system_of("SGE 8.1.9", "SGE 8.1.9")) == "SGE 8.1.9"


def asked(
    own: dict[str, Any],
    resources: Resource = ZERO,
    *,
    system: System = SLURM_HERE,
    factor: float = 1.0,
    held: Resource = ZERO,
) -> str:
    given = {name: value for name, value in own.items() if name != "native"}
    asked_for = OwnArguments(given, own.get("native", ""), held)
    words = words_for(system, unasked)
    return request_for(words, asked_for, Demand(resources, factor), SlurmSite()).native


@pytest.mark.parametrize(
    ("request_", "resources", "words"),
    [
        ({}, ZERO, ""),
        ({"queue": "long"}, ZERO, "--partition=long"),
        (
            {"h_rt": "26:30:00", "h_vmem": "1.5G"},
            ZERO,
            "--time=26:30:00 --mem-per-cpu=1536",
        ),
        (
            {"native": "--comment='a sweep' --constraint=a|b"},
            ZERO,
            "'--comment=a sweep' --constraint=a|b",
        ),
        ({"native": "--exclusive -p fast --mem=2G"}, ZERO, "--exclusive -p fast --mem=2048"),
        (
            {"queue": "long"},
            Cores(2) & Memory(1),
            "--partition=long --cpus-per-task=2 --mem=1024",
        ),
        ({"native": "--signal=B:USR1@10"}, WTime(3600), "--signal=B:USR1@10 --time=01:02:00"),
    ],
)
def test_a_slurm_is_asked_in_its_own_words_as_its_libraries_spell_them(
    request_: dict[str, Any], resources: Resource, words: str
) -> None:
    assert sorted(asked(request_, resources).split()) == sorted(["--no-requeue", *words.split()])


def test_options_that_a_slurm_library_would_drop_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="-J is not for users to set"):
        asked({"native": "-J sweep"})


def test_a_user_may_have_a_slurm_put_workers_back_into_its_queue() -> None:
    assert asked({"native": "--requeue"}) == "--requeue"


class OtherSeats(Capacity):
    """A kind of a user's own."""

    def native_options(self, system: str) -> list[str]:
        return [f"--{system}-seats={self.count}"]


@pytest.mark.parametrize(
    ("system", "request_", "resources", "named"),
    [
        (SLURM_HERE, {"parallel_environment": "smp 4"}, ZERO, "parallel_environment='smp 4'"),
        (SLURM_HERE, {"s_cpu": "1:0:0"}, ZERO, "s_cpu='1:0:0'"),
        (SLURM_HERE, {"h_vmem": "much"}, ZERO, "h_vmem='much'"),
        (TORQUE, {"queue": "long"}, ZERO, "queue='long'"),
        (TORQUE, {"parallel_environment": "smp 4"}, ZERO, "parallel_environment='smp 4'"),
        (TORQUE, {"h_rt": 60}, ZERO, "h_rt=60"),
        (TORQUE, {}, Cores(2), r"Cores\(2\)"),
        (TORQUE, {}, Memory(2), r"Memory\(2\)"),
        (TORQUE, {}, WTime(60), "WTime"),
        (TORQUE, {}, GPUs(1), r"GPUs\(1\)"),
        (TORQUE, {}, Token("big"), "Token"),
    ],
)
def test_requests_that_a_system_cannot_express_are_refused_by_name(
    system: System, request_: dict[str, Any], resources: Resource, named: str
) -> None:
    with pytest.raises(ConfigurationError, match=named) as caught:
        asked(request_, resources, system=system)
    assert ("SLURM 22.05.8" if system is SLURM_HERE else "Torque 6.1.2") in str(caught.value)
    assert caught.value.hint
    assert system is SLURM_HERE or "native=" in caught.value.hint


def test_native_options_for_another_system_are_in_its_own_words() -> None:
    assert (
        asked({"native": " -l nodes=1:ppn=4 "}, Cores(1) & Capacity(2), system=TORQUE)
        == "-l nodes=1:ppn=4"
    )


def test_a_kind_of_a_user_s_own_is_asked_for_its_words_by_the_system_s_first_name() -> None:
    assert asked({}, OtherSeats(2), system=TORQUE) == "--torque-seats=2"
    assert asked({}, OtherSeats(2)) == "--no-requeue --slurm-seats=2"


def test_held_resources_need_no_words_for_another_system() -> None:
    held = Cores(4) & Memory(8)
    native = "-l nodes=1:ppn=4,mem=8gb"
    assert asked({"native": native}, held, system=TORQUE, held=held) == native


def test_memory_is_divided_among_the_slots_of_an_environment_in_native_too() -> None:
    assert grid_engine(Node(4, 8), native="-pe mpi 4") == "-l h_vmem=2G -pe mpi 4"


@pytest.mark.parametrize("name", ["h", "hostname"])
def test_hosts_are_left_out_beside_the_users_condition_on_hosts(name: str) -> None:
    own = OwnArguments({name: "n*", "h_rt": 60}, left_out=["n1"])
    request = request_for(GridEngineWords(), own, Demand(ZERO), GridEngineSite())
    assert request.native == "-l hostname=(n*)&!(n1|n1.*),h_rt=60"


@pytest.mark.parametrize(
    ("native", "words"),
    [
        ("-l h=n*", "-l hostname=(n*)&!(n1|n1.*)"),
        ("-l h=n*,mem=2G -P x", "-l hostname=(n*)&!(n1|n1.*) -l mem=2G -P x"),
        ("-soft -l h=n2 -hard -l mem=2G", "-l hostname=!(n1|n1.*) -soft -l h=n2 -hard -l mem=2G"),
    ],
)
def test_a_condition_on_hosts_in_native_stands_in_the_one_that_leaves_hosts_out(
    native: str, words: str
) -> None:
    own = OwnArguments(native=native, left_out=["n1"])
    request = request_for(GridEngineWords(), own, Demand(ZERO), GridEngineSite())
    assert request.native == words
