"""Ranges of the values of a column, by which a read leaves out rows where they are stored.

The order is that of `dbsp.zset.order`: texts by their bytes, NaN above every number, -0.0 equal to 0.0. A null is in no range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dbsp.zset.order import order_codes
from dbsp.zset.schema import OrderBy

CODE_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRange:
    """The values of a column between `low` and `high`, of the column's type; None: no bound on that side.

    `low_in` and `high_in` say whether the bound itself is in the range. No bound is null or NaN.
    """

    column: str
    low: pa.Scalar | None = None
    high: pa.Scalar | None = None
    low_in: bool = True
    high_in: bool = True

    def holds(self, values: pa.Array) -> NDArray[np.bool_]:
        """Return which values are in the range.

        >>> some = ColumnRange(column="x", low=pa.scalar(0.0), high_in=False)
        >>> some.holds(pa.array([-0.0, -1.0, 2.0, float("nan"), None])).tolist()
        [True, False, True, True, False]
        """
        if pa.types.is_dictionary(values.type):
            among = self.holds(values.dictionary)
            found = np.zeros(len(values), np.bool_)
            there = np.asarray(pc.is_valid(values))
            found[there] = among[np.asarray(values.indices.filter(pa.array(there)))]
            return found
        kept = pc.is_valid(values)
        if self.low is not None:
            above = (pc.greater_equal if self.low_in else pc.greater)(values, self.low)
            if pa.types.is_floating(values.type):
                above = pc.or_(above, pc.is_nan(values))
            kept = pc.and_(kept, above)
        if self.high is not None:
            kept = pc.and_(kept, (pc.less_equal if self.high_in else pc.less)(values, self.high))
        return np.asarray(pc.fill_null(kept, False))

    def codes(self, by: OrderBy) -> tuple[int, int]:
        """Return the least and the greatest order code that a value in the range can have, under an order by the column.

        >>> first, last = ColumnRange(column="x", low=pa.scalar(5)).codes(OrderBy("x"))
        >>> last == CODE_MAX and first == int(order_codes(pa.array([5]), OrderBy("x"))[0])
        True
        """
        ends = [
            None if end is None else int(order_codes(pa.array([end.as_py()], end.type), by)[0])
            for end in (self.low, self.high)
        ]
        first, last = reversed(ends) if by.descending else ends
        return 0 if first is None else first, CODE_MAX if last is None else last

    def __str__(self) -> str:
        """Return the range as conditions of SQL."""
        parts = []
        if self.low is not None:
            parts.append(f"{self.column} {'>=' if self.low_in else '>'} {_shown(self.low)}")
        if self.high is not None:
            parts.append(f"{self.column} {'<=' if self.high_in else '<'} {_shown(self.high)}")
        return " and ".join(parts)


def _shown(value: pa.Scalar) -> str:
    found: Any = value.as_py()
    return repr(found) if isinstance(found, str | int | float) else repr(str(found))


def in_all(ranges: Sequence[ColumnRange], columns: Sequence[pa.Array], rows: int) -> NDArray[np.bool_]:
    """Return which rows are in every range; `columns` are the values of each range's column."""
    found = np.ones(rows, np.bool_)
    for each, values in zip(ranges, columns, strict=True):
        found &= each.holds(values)
    return found
