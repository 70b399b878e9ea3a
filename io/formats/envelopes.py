"""The effect of Debezium's changes on a table: the rows before and after, and `op`, decoded from any format.

| `op` | table with a primary key | table without | append-only |
| --- | --- | --- | --- |
| `c`, `r` | `after` is inserted | the same | the same |
| `u` | `after` replaces the row of its key | `before` is deleted, `after` inserted | a bad row |
| `d` | the row of the key in `before` is deleted | `before` is deleted | a bad row |

An update that changes the key also deletes the row of the key in `before`. A large value that the database did not
log (`__debezium_unavailable_value`) makes the row bad, because the value cannot be known.

Source: Debezium's documentation of its connectors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.algebra.table import NO_DELETE, Table
from dbsp.io.formats.runs import Decoded, good_rows, require
from dbsp.zset.schema import BINARY, STRING

UNAVAILABLE = "__debezium_unavailable_value"
_OPERATIONS = ("c", "r", "u", "d")
_NO_CHANGE = 'not a change: no `op`, or none of "c", "r", "u", "d"'
_NO_BEFORE = "no `before`: let the database log whole rows (REPLICA IDENTITY FULL), or declare the table's primary key"
_NOT_LOGGED = "the database did not log the value: let it log whole rows (REPLICA IDENTITY FULL)"

_Mask = npt.NDArray[np.bool_]


def change_rows(table: Table, columns: Sequence[pa.Array], was: _Mask, comes: _Mask, op: pa.Array) -> Decoded:
    """Return the rows that n changes insert and delete, in order, and each change's number of rows.

    **Shape** `columns` are the table's, of 2 n rows: the rows before, then the rows after. `was` and `comes` say
    which of them exist. **Errors** `WrongMessageError` if one of the changes cannot be applied.
    """
    n = len(op)
    inserts, deletes = _operations(table, columns, was, comes, op)
    gone, come = np.flatnonzero(deletes), np.flatnonzero(inserts)
    order = np.argsort(np.concatenate([2 * gone, 2 * come + 1]))
    chosen = np.concatenate([gone, n + come])[order]
    taken = [column.take(pa.array(chosen)) for column in columns]
    for array, column in zip(taken, table.schema, strict=True):
        if array.type in (STRING, BINARY):
            there = pc.equal(array, pa.scalar(UNAVAILABLE, STRING).cast(array.type))
            require(not pc.any(there, min_count=0).as_py(), f"column {column.name}: {_NOT_LOGGED}")
    return good_rows(table, taken, chosen < n), inserts.astype(np.int64) + deletes


def _operations(
    table: Table, columns: Sequence[pa.Array], was: _Mask, comes: _Mask, op: pa.Array
) -> tuple[_Mask, _Mask]:
    """Return the masks of the changes that insert their row after, and of those that delete their row before."""
    codes = pc.fill_null(pc.index_in(op, pa.array(_OPERATIONS)), -1).to_numpy(zero_copy_only=False)
    require(not np.any(codes < 0), _NO_CHANGE)
    updates, deletes = codes == _OPERATIONS.index("u"), codes == _OPERATIONS.index("d")
    require(not (table.append_only and np.any(updates | deletes)), NO_DELETE)
    inserts = ~deletes
    require(not np.any(inserts & ~comes), "no `after`")
    deletes = deletes | (updates & was & _moved(table, columns, len(op)) if table.primary_key else updates)
    require(not np.any(deletes & ~was), _NO_BEFORE)
    return inserts, deletes


def _moved(table: Table, columns: Sequence[pa.Array], n: int) -> _Mask:
    """Return the mask of the changes whose key after differs from the key before."""
    found = np.zeros(n, np.bool_)
    for name in table.primary_key:
        column = columns[table.schema.index(name)]
        found |= pc.fill_null(pc.not_equal(column[:n], column[n:]), False).to_numpy(zero_copy_only=False)
    return found
