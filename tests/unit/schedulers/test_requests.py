"""What the translations of requests share."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.errors import ConfigurationError
from gridengine.resources.demand import ANY
from gridengine.resources.kinds import Capacity, Cores
from gridengine.schedulers import PBSScheduler
from gridengine.schedulers.batch_words import BatchWords
from gridengine.schedulers.flux import FluxCommands
from gridengine.schedulers.grid_engine.options import GridEngineWords
from gridengine.schedulers.htcondor import HTCondorCommands
from gridengine.schedulers.lsf import LSFCommands
from gridengine.schedulers.oar import OARCommands
from gridengine.schedulers.pbs import PBSCommands
from gridengine.schedulers.requests import (
    check_no_conflict,
    fill_template,
    host_names,
    native_options,
    worker_options,
)
from gridengine.schedulers.slurm.commands import SlurmCommands
from gridengine.settings.schema import BatchSite, QueueSite, SlurmSite


class Seats(Capacity):
    """A kind of a user's, with these options."""

    words: Any = ()

    def native_options(self, system: str) -> Any:
        return self.words


def test_a_request_made_twice_is_refused_with_both_places() -> None:
    own = {"-pe": ("smp 4", "parallel_environment=")}
    check_no_conflict(Cores(2), ["h_vmem"], own)
    with pytest.raises(ConfigurationError, match=r"Cores\(2\) of a call and parallel_environment="):
        check_no_conflict(Cores(2), ["h_vmem", "-pe"], own)


def seats(words: Any) -> Seats:
    made = Seats(1)
    object.__setattr__(made, "words", words)
    return made


@pytest.mark.parametrize(
    ("words", "error", "text"),
    [
        *((words, TypeError, "a list of texts") for words in ("-l", None, [3], {"-l": 1})),
        *(
            (["-l", word], ConfigurationError, "empty or holds a blank or a quote")
            for word in ("", "a b", "a\nb", "it's", 'a"', "a\0")
        ),
    ],
)
def test_a_wrong_list_of_words_is_refused(words: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        native_options(seats(words), "slurm")


def test_a_template_is_filled() -> None:
    assert fill_template("slurm.gpus", "-l gpu={count} {{x}}", count=2) == "-l gpu=2 {x}"


@pytest.mark.parametrize(
    "template", ["{", "}", "{}", "{0}", "{other}", "{count.x}", "{count[a]}", "{count:q}"]
)
def test_a_template_with_other_places_is_refused_with_the_setting(template: str) -> None:
    with pytest.raises(ConfigurationError, match=r"slurm.gpus = .* may hold {count} and no other"):
        fill_template("slurm.gpus", template, count=2)


@pytest.mark.parametrize("value", ["n1,n2.site", ["n1", "n2.site"], ("n1 ", "n2.site")])
def test_hosts_are_named_by_a_text_or_several(value: Any) -> None:
    assert host_names("exclude_hosts", value) == ("n1", "n2.site")


@pytest.mark.parametrize("value", ["", (), None, []])
def test_no_hosts_are_left_out_by_default(value: Any) -> None:
    assert host_names("exclude_hosts", value) == ()


@pytest.mark.parametrize(
    ("value", "error"),
    [(3, TypeError), ([3], TypeError)]
    + [(one, ConfigurationError) for one in ("n[1-3]", "n1,", "a b", "-n1", "n1'", ["n1,n2"])],
)
def test_a_wrong_list_of_hosts_is_refused_with_its_value(
    value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="exclude_hosts must be names of hosts"):
        host_names("exclude_hosts", value)


SYSTEMS = [
    pytest.param(
        SlurmCommands(),
        "-x n9",
        ["--exclude=n1,n2.site", "--exclude=n9,n1,n2.site"],
        id="slurm",
    ),
    pytest.param(
        OARCommands(),
        "-p mem>64",
        [
            "--property=network_address NOT IN ('n1', 'n2.site')",
            "--property=(mem>64) AND network_address NOT IN ('n1', 'n2.site')",
        ],
        id="oar",
    ),
    pytest.param(
        FluxCommands(),
        "--requires=big",
        ["--requires=-host:n1,n2.site", "--requires=(big) and -host:n1,n2.site"],
        id="flux",
    ),
    pytest.param(
        LSFCommands(),
        "-R select[type==any]",
        ["select[hname!='n1' && hname!='n2.site']"] * 2,
        id="lsf",
    ),
    pytest.param(
        HTCondorCommands(),
        "requirements=HasX",
        [
            "requirements=(NumJobStarts ?: 0) < 1 && "
            '(!regexp("^(n1|n2[.]site)([.]|$)", Machine, "i"))',
            "requirements=(NumJobStarts ?: 0) < 1 && "
            '(!regexp("^(n1|n2[.]site)([.]|$)", Machine, "i") && (HasX))',
        ],
        id="htcondor",
    ),
    pytest.param(
        GridEngineWords(),
        "",
        ["-l hostname=!(n1|n1.*|n2.site|n2.site.*)"] * 2,
        id="grid_engine",
    ),
]


@pytest.mark.parametrize(("system", "own", "words"), SYSTEMS)
def test_hosts_are_left_out_in_the_systems_own_words_beside_the_users_condition(
    system: BatchWords, own: str, words: list[str]
) -> None:
    hosts = ["n1", "n2.site"]
    for given, last in zip(("", own), words, strict=True):
        options = worker_options(system, system.split(given), ANY, BatchSite(), hosts)
        assert options[-1] == last


def test_hosts_of_the_setting_are_left_out_too() -> None:
    site = SlurmSite(exclude_hosts="n1, n2")
    options = worker_options(SlurmCommands(), [], ANY, site, ["n3", "n1"])
    assert options == ["--exclude=n1,n2,n3"]


def test_a_system_without_words_for_hosts_says_so() -> None:
    with pytest.raises(ConfigurationError, match="exclude_hosts='n1': PBS has no words"):
        worker_options(PBSCommands(), [], ANY, QueueSite(exclude_hosts="n1"))
    with pytest.raises(ConfigurationError, match="exclude_hosts='n1,n2': PBS has no words"):
        PBSScheduler(exclude_hosts=["n1", "n2"])


def test_a_pool_without_another_host_can_never_start_a_worker() -> None:
    system = HTCondorCommands()
    condition = system.excluding(["n1"], "")[0].removeprefix("requirements=")
    assert system.never.search(system.because(f"[2]           0  {condition}"))
