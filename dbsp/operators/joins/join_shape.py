"""Parts that the joins share: two sides with keys, the rows that can match, and the columns of an output row.

A row with a null key matches nothing, unless the join is null-safe. A row with a null time matches nothing if the join compares
times. Such a row is never stored; an outer join emits it as unmatched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.operators.monotone_bounds import Bound, MonotoneBounds, merged
from dbsp.operators.operator import Integral
from dbsp.stored import stored
from dbsp.zset.arrays import gather, valid_rows
from dbsp.zset.batch import Batch
from dbsp.zset.equality import equal_columns
from dbsp.zset.hashing import hash_decides
from dbsp.zset.schema import Column, Schema

I64 = npt.NDArray[np.int64]


@stored("JoinShape", "left right left_on right_on columns schema null_safe")
@dataclass(frozen=True, slots=True, kw_only=True)
class JoinShape:
    """The sides (0 left, 1 right) and keys of a join; `columns` lists (side, input column, output column).

    A left key column in the output contains the key. For an unmatched right row it therefore contains the right key.
    """

    left: Schema
    right: Schema
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    columns: tuple[tuple[int, str, str], ...]
    schema: Schema
    null_safe: bool = False

    def __str__(self) -> str:
        """Return the key columns as text."""
        pairs = zip(self.left_on, self.right_on, strict=True)
        keys = ", ".join(a if a == b else f"{a} = {b}" for a, b in pairs)
        return f"on ({keys})" + (" null-safe" if self.null_safe else "")

    def on(self, side: int) -> tuple[str, ...]:
        """Return the key columns of a side."""
        return self.right_on if side else self.left_on

    def side(self, side: int) -> Schema:
        """Return the schema of a side."""
        return self.right if side else self.left

    def integral(self, side: int, *others: str, only: bool = True) -> Integral:
        """Return the integral of a side's rows that can match; `only` says that the join needs no other rows of the side."""
        return Integral(stream=side, present=(*others, *(() if self.null_safe else self.on(side))), only=only)

    def meeting(self, batch: Batch, side: int, *others: str) -> tuple[Batch, Batch]:
        """Return the rows that can match and the rows that cannot; a null in a column of `others` also prevents a match."""
        names = (*others, *(() if self.null_safe else self.on(side)))
        masks = [mask for name in names if (mask := valid_rows(batch.held_column(name))) is not None]
        if not masks:
            return batch, Batch.empty(batch.schema)
        able = np.logical_and.reduce(masks)
        return batch.filter(able), batch.filter(~able)

    def keys(self, rows: Batch, side: int, names: tuple[str, ...]) -> Batch:
        """Return the keys of arranged rows under the column names `names`, in the rows' order, with their hashes."""
        own = self.side(side)
        schema = Schema(tuple(Column(new, own[old].type) for new, old in zip(names, self.on(side), strict=True)))
        columns = tuple(rows.held_column(name) for name in self.on(side))
        ones = np.ones((len(rows), 1), np.int64)
        return Batch(schema=schema, columns=columns, weights=ones, key_hash=rows.key_hash)

    def same_key(self, rows: Batch, query: I64, found: Batch, side: int) -> tuple[I64, Batch]:
        """Return only those candidates whose keys are equal, given pairs of rows whose key hashes are equal.

        `query` is the index of the row in `rows`; `found` contains the candidates of the other side.
        """
        keys = [rows.held_column(name) for name in self.on(side)]
        theirs = [found.held_column(name) for name in self.on(1 - side)]
        if len(query) == 0 or (hash_decides(keys) and hash_decides(theirs)):
            return query, found
        same = equal_columns(keys, query, theirs, np.arange(len(found)))
        return (query, found) if same.all() else (query[same], found.take(np.flatnonzero(same)))

    def paired(self, left: Batch, left_at: I64, right: Batch, right_at: I64, weights: I64) -> Batch:
        """Return the output rows of pairs of rows, given by indices into both sides."""
        columns = tuple(
            gather(left.held_column(name), left_at) if side == 0 else gather(right.held_column(name), right_at)
            for side, name, _ in self.columns
        )
        return Batch(schema=self.schema, columns=columns, weights=weights.reshape(-1, 1))

    def alone(self, rows: Batch, side: int, weights: I64) -> Batch:
        """Return the output rows of unmatched rows of a side, with nulls for the other side's columns; skip zero weights."""
        there = np.flatnonzero(weights)
        rows = rows.take(there)
        columns = tuple(self._alone(rows, side, of, name, len(there)) for of, name, _ in self.columns)
        return Batch(schema=self.schema, columns=columns, weights=weights[there].reshape(-1, 1))

    def _alone(self, rows: Batch, side: int, of: int, name: str, count: int) -> pa.Array:
        if of == side:
            return rows.held_column(name)
        if name in self.on(of):
            return rows.held_column(self.on(side)[self.on(of).index(name)])
        return pa.nulls(count, self.side(of)[name].type)

    def bounds(self, inputs: Sequence[MonotoneBounds]) -> dict[tuple[str, str], Bound]:
        """Return the lower of both sides' bounds for each pair of key columns that has a bound on both sides."""
        left, right = inputs
        pairs = zip(self.left_on, self.right_on, strict=True)
        return {(a, b): merged([left[a], right[b]]) for a, b in pairs if a in left and b in right}

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the output's key columns: a changed output row has the key of a changed input row."""
        bounds = {(0, a): bound for (a, _), bound in self.bounds(inputs).items()}
        bounds |= {(1, b): bound for (_, b), bound in self.bounds(inputs).items()}
        return {out: bounds[side, name] for side, name, out in self.columns if (side, name) in bounds}

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, tuple[str, Bound] | None]:
        """Return the key columns and the bound below which stored rows are never read again; (None, None) without a bound."""
        (a, b), bound = next(iter(self.bounds(inputs).items()), (("", ""), None))
        return (None, None) if bound is None else ((a, bound), (b, bound))
