"""The rows of replayed letters in a step's record: as they were, in the order of their places, without what the step drops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.algebra.table import Table
from dbsp.errors import DataError
from dbsp.logs import DELETE, INSERT
from dbsp.logs.replays import LetterRows, of_letters, replayed_changes, replayed_letters, replayed_places
from dbsp.logs.step_commands import DroppedRow, drop_command, skipped_nodes
from dbsp.zset.loose import loose_batch
from dbsp.zset.schema import INT64, STRING, Column, Schema, list_of
from tests.pace import examples

COLUMNS = (Column("id", INT64, nullable=False), Column("name", STRING), Column("tags", list_of(STRING)))
TABLE = Table(name="t", schema=Schema(COLUMNS), primary_key=("id",))
WIDER = Table(name="t", schema=Schema((*COLUMNS, Column("more", INT64))), primary_key=("id",))
OTHER = Table(name="t", schema=Schema((Column("id", STRING), *COLUMNS[1:])))
ROW = st.tuples(
    st.one_of(st.none(), st.integers(-5, 5)),
    st.one_of(st.none(), st.text(max_size=3)),
    st.one_of(st.none(), st.lists(st.text(max_size=2), max_size=2)),
    st.sampled_from([INSERT, DELETE]),
)
LETTER = st.tuples(st.integers(0, 2), st.integers(0, 3), st.lists(ROW, min_size=1, max_size=3), st.booleans())


def _arrays(columns: Sequence[Sequence[Any]]) -> list[pa.Array]:
    return [pa.array(values, column.type) for values, column in zip(columns, COLUMNS, strict=True)]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(LETTER, min_size=1, max_size=8))
def test_rows_are_as_they_were(drawn: list[tuple[int, int, list[tuple[object, ...]], bool]]) -> None:
    made, expected, dropped = [], defaultdict(list), set[tuple[int, int]]()
    dropped |= {(partition, offset) for partition, offset, _, drops in drawn if drops}
    for number, (partition, offset, rows, _) in enumerate(drawn):
        columns = [[row[place] for row in rows] for place in range(3)]
        letter = LetterRows(position=(7, number), partition=partition, offset=offset, rows=len(rows))
        made.append((letter, loose_batch(TABLE.schema, _arrays(columns)), np.array([row[3] for row in rows], np.int8)))
    for letter, batch, operations in sorted(
        made, key=lambda each: (each[0].partition, each[0].offset, each[0].position)
    ):
        if (letter.partition, letter.offset) not in dropped:
            found = zip(
                *(batch.column(name).to_pylist() for name in TABLE.schema.names), operations.tolist(), strict=True
            )
            expected[letter.partition] += [(letter.offset, *row) for row in found]
    commands = [of_letters("t", made).to_text()]
    assert {letter.position for letter in replayed_letters(commands)} == {(7, number) for number in range(len(drawn))}
    assert set(replayed_places(commands)) == {("t", partition, offset) for partition, offset, _, _ in drawn}
    if dropped:
        places = [DroppedRow(table="t", partition=p, offset=o, payload="") for p, o in sorted(dropped)]
        commands.append(drop_command(places, "it dies"))
    assert skipped_nodes(commands) == frozenset()
    for table in (TABLE, WIDER):
        changes = replayed_changes(commands, {"t": table})
        assert [change.partition for change in changes] == sorted(expected)
        for change in changes:
            columns = [change.batch.column(name).to_pylist() for name in TABLE.schema.names]
            rows = list(zip(change.offsets.tolist(), *columns, change.operations.tolist(), strict=True))
            assert rows == expected[change.partition]


def test_rows_of_another_table_are_refused() -> None:
    rows = LetterRows(position=(0, 0), partition=0, offset=0)
    command = of_letters(
        "t", [(rows, loose_batch(TABLE.schema, _arrays([[1], ["a"], [[]]])), np.zeros(1, np.int8))]
    ).to_text()
    for tables in ({}, {"t": OTHER}):
        with pytest.raises(DataError, match="replayed rows have another schema: table=t"):
            replayed_changes([command], tables)
