"""Ids of tasks survive Slurm's short forms, whatever they are."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from gridengine.schedulers.launcher import compress
from gridengine.schedulers.slurm.answers import ids_of, parse_jobs, parse_squeue

ids = st.one_of(
    st.integers(1, 50).map(str),
    st.tuples(st.integers(51, 99), st.integers(0, 1000)).map(lambda pair: f"{pair[0]}_{pair[1]}"),
)


@given(st.sets(ids))
def test_compressed_ids_expand_to_the_same(some: set[str]) -> None:
    words = (word.rstrip("]").partition("_[") for word in compress(some))
    expanded = [id for job, _, tasks in words for id in ids_of(job, tasks)]
    assert sorted(expanded) == sorted(some)


@given(st.text(alphabet="0123456789_[]-,:%N/A|PENDIG \n=Jobd", max_size=60))
def test_no_output_makes_the_parsers_fail_but_by_saying_so(text: str) -> None:
    for parse in (parse_squeue, parse_jobs):
        with contextlib.suppress(ValueError):
            parse(text)
