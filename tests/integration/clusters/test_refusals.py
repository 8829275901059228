"""What users ask for that a batch system has not: the error has its words, and says what to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scenario import play

if TYPE_CHECKING:
    from tests.support.clusters import Cluster

REMEDIES = {
    "grid_engine": {
        "queue='nosuch.q'": "`qconf -sql`",
        "parallel_environment='nosuch 2'": "`qconf -spl`",
        "nosuch=1": "`qconf -sc`",
        "native='-P nosuch'": "`qconf -sprjl`",
        "native='-nosuch'": "`man qsub`",
        "h_rt='soon'": "h_rt='2:00:00'",
        "h_vmem='much'": "h_vmem='4G'",
        "native='-l h=nosuch'": "`qhost`",
        "native='-N \"my sweep\"'": "no blanks in a name",
        "native='-A \"my lab\"'": "no blanks in a name",
        "native='-w e -l num_proc=90000'": "ask for less",
    },
    "slurm": {
        "partition='nosuch'": "`sinfo`",
        "nosuch=1": "`sbatch --help`",
        "time='soon'": "time='2:00:00'",
        "mem='much'": "mem='4G'",
        "gres='nosuch:1'": "`sinfo --format='%P %G'`",
        "constraint='nosuch'": "`sinfo --format='%N %f'`",
        "nodelist='nosuch'": "`sinfo --Node`",
        "reservation='nosuch'": "`scontrol show reservation`",
        "mem='900000G'": "ask for less",
    },
}
"""What to try, by the scheduler's argument that is at fault."""
WORDS = {
    "grid_engine": {
        "h_vmem='abc'": "is not a memory value",
        "queue='nosuch.q'": 'unknown queue "nosuch.q"',
        "parallel_environment='nosuch 2'": 'parallel environment "nosuch" does not exist',
        "hostname='nosuch'": 'can\'t resolve hostname "nosuch"',
        "native='-nosuch 3'": "-nosuch",
    },
    "slurm": {
        "partition='nosuch'": "`sinfo` lists the partitions",
        "constraint='nosuch'": "lists the nodes' features",
    },
}
"""What the text says, likewise."""


def test_a_missing_resource_is_refused_in_the_cluster_s_words_with_a_remedy(
    cluster: Cluster,
) -> None:
    remedies, words = REMEDIES[cluster.name], WORDS[cluster.name]
    asked = [*dict.fromkeys([*remedies, *words])]
    cases = ", ".join(f"{given!r}: lambda: CLUSTER({given})" for given in asked)
    told = play(
        cluster,
        f"""
told = {{}}
for given, scheduler in {{{cases}}}.items():
    told[given] = facts_of(lambda: gridengine.map(abs, [1], scheduler=scheduler))
tell(**told)
""",
    ).result()
    assert list(told) == asked
    assert {one["kind"] for one in told.values()} == {"SubmissionRefused"}, told
    assert [told[given] for given in remedies if remedies[given] not in told[given]["hint"]] == []
    assert [told[given] for given in words if words[given] not in told[given]["text"]] == []
