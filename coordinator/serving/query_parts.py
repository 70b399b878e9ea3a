"""Find the rows and columns to read of a view, from the part that a statement needs.

The needed part is found in the process that runs queries, which knows neither types nor sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa

from dbsp.coordinator.query.pushdown import Condition, Needed
from dbsp.coordinator.query.sieve import PLACE, Sieve
from dbsp.coordinator.serving.query_ranges import ranges_of
from dbsp.runtime.leases import Wanted
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Schema

KEYS_MAX = 256
"""The most keys that are looked up one by one; with more, the view is read."""
VALUES_SHOWN = 5
_IS_KIND = {"STRING": pa.types.is_string, "INTEGER": pa.types.is_integer}


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPart:
    """The part of a view that a query reads: the wanted rows and columns, and no more than `rows_max` rows.

    With a sieve the part is sent piece by piece, and the sieve keeps rows of each piece.
    """

    view: str
    wanted: Wanted
    rows_max: int | None = None
    sieve: Sieve | None = None

    @property
    def is_whole(self) -> bool:
        """Return whether all rows and columns are read."""
        everything = self.wanted.all_rows and self.wanted.columns is None
        return everything and self.rows_max is None and self.sieve is None

    def described(self) -> str:
        """Return the part in words.

        >>> ViewPart(view="v", wanted=Wanted(columns=("a", "b")), rows_max=3).described()
        'the first 3 rows, columns a, b'
        """
        rows = "all rows" if self.rows_max is None else f"the first {self.rows_max} rows"
        if not self.wanted.all_rows:
            equal = [] if self.wanted.equal is None else [_described(self.wanted.equal)]
            rows = f"rows where {' and '.join([*equal, *map(str, self.wanted.ranges)])}"
        columns = "all columns" if self.wanted.columns is None else f"columns {', '.join(self.wanted.columns)}"
        return f"{rows}, {columns}"


def _described(equal: Batch) -> str:
    """Return the condition in words: the values of each column."""
    parts = []
    for name, column in zip(equal.schema.names, zip(*(row for row, _ in equal.to_rows()), strict=True), strict=True):
        values = [repr(value) for value in dict.fromkeys(column)]
        more = ["…"] if len(values) > VALUES_SHOWN else []
        shown = ", ".join([*values[:VALUES_SHOWN], *more])
        parts.append(f"{name} = {shown}" if len(values) == 1 else f"{name} in ({shown})")
    return " and ".join(parts)


def part_of(view: str, needed: Needed, schema: Schema, known: frozenset[str]) -> ViewPart:
    """Return the part of a view of these columns; `known` are the names of the columns of all views of the statement.

    A statement with a name that nothing has, such as a misspelled one, reads all columns. Then DuckDB's error can
    suggest similar names.
    """
    columns: tuple[str, ...] | None = None
    if needed.columns is not None and set(needed.columns) <= known | set(needed.own):
        columns = tuple(name for name in schema.names if name.lower() in needed.columns)
        columns = columns or tuple(schema.names[:1])  # a relation without columns has no rows either
    if columns == tuple(schema.names):
        columns = None
    equal = rows_of(needed.conditions, schema)
    found = ranges_of(needed.bounds, schema)
    ranges = tuple(each for each in found if equal is None or each.column not in equal.schema.names)
    wanted = Wanted(equal=equal, columns=columns, ranges=ranges)
    names = [name.lower() for name in schema.names]
    sieve = needed.sieve
    if sieve is not None and (PLACE in names or any(names.count(name) != 1 for name in sieve.columns)):
        sieve = None  # a name is not one of a column of the view: perhaps of the query around
    return ViewPart(view=view, wanted=wanted, rows_max=needed.limit, sieve=sieve)


def rows_of(conditions: Sequence[Condition], schema: Schema) -> Batch | None:
    """Return the rows of some columns that the conditions allow; None if none of them can be compared without a cast.

    >>> from dbsp.zset.schema import INT64, STRING
    >>> schema = Schema.of({"item": STRING, "paid": INT64})
    >>> rows_of([("item", "STRING", ["x", "y"]), ("paid", "STRING", ["7"])], schema).to_rows()
    [(('x',), 1), (('y',), 1)]
    """
    values: dict[str, list[Any]] = {}
    count = 1
    for column, kind, texts in conditions:
        same = [each for each in schema if each.name.lower() == column]
        if len(same) != 1 or not _IS_KIND[kind](same[0].type) or same[0].name in values:
            continue
        try:
            found = [pa.scalar(text if kind == "STRING" else int(text), same[0].type).as_py() for text in texts]
        except (pa.ArrowException, ValueError, OverflowError):
            continue
        distinct = list(dict.fromkeys(found))
        if count * len(distinct) <= KEYS_MAX:
            values[same[0].name] = distinct
            count *= len(distinct)
    if not values:
        return None
    some = schema.select([name for name in schema.names if name in values])
    rows = list(product(*(values[name] for name in some.names)))
    return Batch.of(
        some, [pa.array(column, each.type) for column, each in zip(zip(*rows, strict=True), some, strict=True)]
    )
