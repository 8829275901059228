"""The names that texts of a function name: formulas, queries, SQL, expressions."""

from __future__ import annotations

from typing import Any

import pytest

from gridengine.serialize.names_in_texts import names_of_code, names_of_text


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("y ~ np.log(x) + double(x)", "double log np x y"),
        ("y~x", "x y"),
        ("~ x + z", "x z"),
        ("y > @limit", "limit"),
        ("double(limit)", "double limit"),
        ("a * 2 + b", "a b"),
        ("x = limit\nprint(x)", "limit print x"),
        ("select sum(a) from frame", "a frame from select sum"),
        ("-- all\n  SELECT a FROM frame", "FROM SELECT a all frame"),
        (" from frame where a > ", "a frame from where"),  # a part of an f-string
        (" + double(", "double"),
        (" JOIN frame USING (", "JOIN USING frame"),
    ],
)
def test_a_text_that_reads_like_code_has_names(text: str, names: str) -> None:
    assert sorted(names_of_text(text, False)) == names.split()


@pytest.mark.parametrize(
    "text",
    [
        *(
            "limit",
            "data/frame.csv",
            "data-frame",
            "{data}.csv",
            "data:frame",
            "",
            " ",
            "%s of data",
        ),
        *("no data from server", "error in data", "data is None", ": data", "warning: data"),
        *("takes ~5 s of data", "~/data", "me@host.data", "a\\b", "((((" * 300, "[" * 10_000),
    ],
)
def test_a_text_of_words_has_no_names(text: str) -> None:
    assert not names_of_text(text, False)


def test_a_single_word_counts_where_variables_are_looked_up_by_name() -> None:
    def looks_up() -> Any:
        return globals()["double"]

    def reads_column(row: Any) -> Any:
        return row["double"]

    assert names_of_code(looks_up.__code__) == {"double"}
    assert not names_of_code(reads_column.__code__)


def test_texts_in_tuples_and_inner_functions_count() -> None:
    def function(frame: Any) -> Any:
        return [[frame.query(one) for one in ("a > @low", "b < @high")], lambda: eval("2 * x")]

    assert names_of_code(function.__code__) == {"low", "high", "x"}


def test_docstrings_names_of_keywords_and_local_variables_do_not_count() -> None:
    def function(frame: Any) -> Any:
        """double(limit)"""
        limit = frame.join(double=eval, data=1)

        class Inner:
            """double(limit)"""

        return frame.query("y > @limit", a=limit, b=Inner)

    assert not names_of_code(function.__code__)
