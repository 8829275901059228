"""Which system a DRMAA library speaks to, and what is asked of one that is no Grid Engine."""

from __future__ import annotations

import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources import ZERO, Capacity, Cores, GPUs, Memory, Resource, Token, WTime
from gridengine.resources.demand import Demand
from gridengine.schedulers.grid_engine.drmaa_systems import (
    GRID_ENGINE,
    SLURM,
    System,
    native_request,
    system_of,
)
from gridengine.schedulers.grid_engine.request import Request
from gridengine.settings.values import Settings, SlurmSite

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
    request: Request,
    resources: Resource = ZERO,
    *,
    system: System = SLURM_HERE,
    factor: float = 1.0,
    site: SlurmSite | None = None,
) -> str:
    return native_request(
        system, request, Demand(resources, factor), ZERO, Settings(slurm=site or SlurmSite())
    ).specification()


@pytest.mark.parametrize(
    ("request_", "resources", "words"),
    [
        (Request(), ZERO, ""),
        (Request(queue="long"), ZERO, "--partition=long"),
        (
            Request(resources={"h_rt": "26:30:00", "h_vmem": "1.5G"}),
            ZERO,
            "--time=26:30:00 --mem-per-cpu=1536",
        ),
        (
            Request(native="--comment='a sweep' --constraint=a|b"),
            ZERO,
            "'--comment=a sweep' --constraint=a|b",
        ),
        (Request(native="--exclusive -p fast --mem=2G"), ZERO, "--exclusive -p fast --mem=2048"),
        (
            Request(queue="long"),
            Cores(2) & Memory(1),
            "--partition=long --cpus-per-task=2 --mem=1024",
        ),
        (Request(native="--signal=B:USR1@10"), WTime(3600), "--signal=B:USR1@10 --time=01:02:00"),
    ],
)
def test_a_slurm_is_asked_in_its_own_words_as_its_libraries_spell_them(
    request_: Request, resources: Resource, words: str
) -> None:
    assert sorted(asked(request_, resources).split()) == sorted(["--no-requeue", *words.split()])


def test_what_a_slurm_library_would_drop_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="-J is not for users to set"):
        asked(Request(native="-J sweep"))


def test_a_user_may_have_a_slurm_put_workers_back_into_its_queue() -> None:
    assert asked(Request(native="--requeue")) == "--requeue"


class Seats(Capacity):
    """A kind of a user's own."""

    def _native(self, system: str) -> list[str]:
        return [f"--{system}-seats={self.count}"]


@pytest.mark.parametrize(
    ("system", "request_", "resources", "named"),
    [
        (SLURM_HERE, Request(parallel_environment="smp 4"), ZERO, "parallel_environment='smp 4'"),
        (SLURM_HERE, Request(resources={"s_cpu": "1:0:0"}), ZERO, "s_cpu='1:0:0'"),
        (SLURM_HERE, Request(resources={"h_vmem": "much"}), ZERO, "h_vmem='much'"),
        (TORQUE, Request(queue="long"), ZERO, "queue='long'"),
        (TORQUE, Request(parallel_environment="smp 4"), ZERO, "parallel_environment='smp 4'"),
        (TORQUE, Request(resources={"h_rt": 60}), ZERO, "h_rt=60"),
        (TORQUE, Request(), Cores(2), r"Cores\(2\)"),
        (TORQUE, Request(), Memory(2), r"Memory\(2\)"),
        (TORQUE, Request(), WTime(60), "WTime"),
        (TORQUE, Request(), GPUs(1), r"GPUs\(1\)"),
        (TORQUE, Request(), Token("big"), "Token"),
    ],
)
def test_what_cannot_be_said_to_a_system_is_refused_by_name(
    system: System, request_: Request, resources: Resource, named: str
) -> None:
    with pytest.raises(ConfigurationError, match=named) as caught:
        asked(request_, resources, system=system)
    assert ("SLURM 22.05.8" if system is SLURM_HERE else "Torque 6.1.2") in str(caught.value)
    assert caught.value.hint
    assert system is SLURM_HERE or "native=" in caught.value.hint


def test_another_system_is_told_what_the_user_says_in_its_words() -> None:
    assert (
        asked(Request(native=" -l nodes=1:ppn=4 "), Cores(1) & Capacity(2), system=TORQUE)
        == "-l nodes=1:ppn=4"
    )


def test_a_kind_of_a_user_s_own_is_asked_for_its_words_by_the_system_s_first_name() -> None:
    assert asked(Request(), Seats(2), system=TORQUE) == "--torque-seats=2"
    assert asked(Request(), Seats(2)) == "--no-requeue --slurm-seats=2"


def test_what_the_user_says_that_workers_hold_needs_no_words_for_another_system() -> None:
    held = Cores(4) & Memory(8)
    request = Request(native="-l nodes=1:ppn=4,mem=8gb")
    assert (
        native_request(TORQUE, request, Demand(held), held, Settings()).specification()
        == request.native
    )
