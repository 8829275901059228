"""What a Slurm allows and what it lacks, and what its refusals mean: pure functions on its
commands' output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Site:
    """`largest`: the most tasks of an array; 0: there are no arrays. `memory`: the option that a
    job needs which asks for none, or empty. `accounts`: whether accounts of jobs are kept.
    `whole_cores`: where each job is given a whole node, how many cores the smallest has; else 0.
    `hides_memory`: whether a job that asks for no memory may be given all of a node's, and how much
    that is cannot be seen."""

    largest: int = 1000
    memory: str = ""
    accounts: bool = False
    whole_cores: int = 0
    hides_memory: bool = False


def site_of(config: str, partitions: str, nodes: str, names: str) -> Site:
    """Return what a Slurm allows, from `scontrol show config`, `scontrol show partition --oneliner`
    and sinfo's "%R|%c|%m".

    names: the partitions that are asked for, joined by commas; empty for the default one. Of
    partitions and nodes that the site does not show (PrivateData) the text is empty. Where Slurm
    gives out memory, a job that asks for none gets all that a node has, unless the site says
    otherwise; then the share of a core is asked for, so that a node runs as many workers as it has
    cores. More than MaxMemPerCPU would take several cores (slurm.conf(5)).
    """
    fields = dict(re.findall(r"^(\w+)\s+=\s(.*?)\s*$", config, flags=re.MULTILINE))
    largest = int(fields.get("MaxArraySize", "1001")) - 1
    accounts = not fields.get("AccountingStorageType", "none").endswith("none")
    gives_memory = "MEMORY" in fields.get("SelectTypeParameters", "").upper()
    chosen = [
        fields | dict(re.findall(r"(\w+)=(\S*)", line)) for line in partitions.splitlines() if line
    ]
    chosen = [
        one
        for one in chosen
        if (one["PartitionName"] in names.split(",") if names else one.get("Default") == "YES")
    ]
    # `UNLIMITED` stands for no default.
    needs = gives_memory and any(
        one.get("DefMemPerNode", "UNLIMITED") == one.get("DefMemPerCPU", "UNLIMITED") == "UNLIMITED"
        for one in (chosen if partitions else [fields])
    )
    sizes = parse_sizes(nodes, [one["PartitionName"] for one in chosen])
    shares = [memory // cores for cores, memory in sizes]
    most = [int(said) for one in chosen if (said := one.get("MaxMemPerCPU", "")).isdecimal()]
    share = min([*shares, *most]) if needs and shares else 0
    whole = fields.get("SelectType") == "select/linear" or any(
        one.get("OverSubscribe") == "EXCLUSIVE" or one.get("Exclusive") == "NODE"  # from 26.05 on
        for one in chosen
    )
    return Site(
        max(0, largest),
        f"--mem-per-cpu={share}M" if share else "",
        accounts,
        min((cores for cores, _ in sizes), default=0) if whole else 0,
        hides_memory=needs and not nodes,
    )


def parse_sizes(nodes: str, partitions: Sequence[str]) -> list[tuple[int, int]]:
    """Return cores and megabytes of the kinds of nodes of these partitions, from sinfo's
    "%R|%c|%m"; none when it does not say.
    """
    rows = re.findall(r"^(.*)\|(\d+)\+?\|(\d+)\+?\s*$", nodes, flags=re.MULTILINE)
    return [
        (int(cores), int(memory))
        for name, cores, memory in rows
        if name in partitions and int(cores)
    ]


UNREACHABLE = re.compile(
    r"unable to contact|socket timed out|authentication error|munge|zero bytes|connection (refused|"
    r"reset)|backup controller|"
    r"configuration (file|source)|ClusterName|timed out|communications|unexpected message|protocol "
    r"version",
    re.IGNORECASE,
)
"""How Slurm's commands word that they reach no Slurm."""
LATER = re.compile(
    r"temporarily unable|queue full|try again|MaxSubmit|MaxJobCount|submit limit|Resource "
    r"temporarily|too many",
    re.IGNORECASE,
)
"""How they word a limit that others' jobs, or ours, use up. Slurm names it with one text for all
limits, of which some never pass.
"""
OWN_LIMITS = {
    "AssocMaxSubmitJobLimit|QOSMaxSubmitJobPerUserLimit": "`sacctmgr show associations user=$USER` "
    "and `sacctmgr show qos` list the limits, of which one is MaxSubmitJobs=0: name another "
    "account= or qos=, or ask the administrators"
}
"""Of these limits, those that the jobs of this user alone use up: with none, they allow none."""
BARRED = {"Invalid user id": "root may not submit jobs here; run this as a plain user"}
LESS = "no node has all of this, even when it is empty: ask for less"
"""The remedy where the site has nothing of that size."""
REMEDIES = {
    "invalid account": "`sacctmgr show associations user=$USER` lists the accounts; name one "
    "with account=",
    "user's group not permitted|access/permission denied": "ask the administrators who may use "
    "this partition, account or reservation; or name another",
    "partition name": "`sinfo` lists the partitions; name one with partition=",
    "invalid qos": "`sacctmgr show qos` lists them; name one with qos=",
    r"generic resource \(gres\)|invalid gres": "`sinfo --format='%P %G'` lists each partition's "
    "GPUs and the like, as (null) where it has none; how GPUs are asked for here is the setting "
    "gpus of [slurm]",
    "feature specification": "`sinfo --format='%N %f'` lists the nodes' features",
    "time limit is invalid": "`sinfo --format='%P %l'` lists how long jobs may take in each "
    "partition; ask for less with time= or WTime, or name another partition=",
    "--time(-min)? specification": "write a time as minutes, 'hours:minutes:seconds' or "
    "'days-hours', as time='2:00:00'; or leave it to the WTime of calls",
    r"--(mem|tmp)\S* specification": "write an amount with a unit, as mem='4G'; or leave it to "
    "the Memory of calls",
    "unrecognized option|invalid option|ambiguous": "arguments of SlurmScheduler that are not "
    "its own go to sbatch as --NAME=VALUE: `sbatch --help` lists the options; is one misspelt?",
    "reservation": "`scontrol show reservation` lists the reservations and who may use them",
    "node name": "`sinfo --Node` lists the nodes",
    "license": "`scontrol show licenses` lists the licences",
    "node configuration|can not be satisfied|node count specification|more processors": LESS,
    r"accounting/qos policy": "`sacctmgr show associations user=$USER` and `sacctmgr show qos` "
    "list the limits: ask for less, or name another account= or qos=",
}
"""What can be done where a refusal holds these words, as regular expressions: the first that
matches (the texts are those of Slurm 22.05's slurm_strerror and sbatch).
"""
BY_A_RULE = (
    "a rule of the site may refuse it (job_submit in its slurm.conf): `sbatch` by hand with the "
    "same options says whether it does; change what its words name, or ask the administrators"
)
"""The remedy for a refusal in a site's own words."""
UNAVAILABLE = {
    "munge|authentication": "`munge -n | unmunge` tells whether munged runs on this machine; ask "
    "the administrators",
    "configuration|clustername": "this machine has no slurm.conf; SLURM_CONF may say where it is",
    "": "`scontrol ping` tells whether slurmctld answers; ask the administrators",
}
"""What can be done where Slurm is not reached and these words are said."""
