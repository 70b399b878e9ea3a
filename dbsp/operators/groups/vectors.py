"""Vectors: the result of a user's linear aggregate for each row, as columns of 64-bit integers beside the row.

**Law** linear, provided the function is pure. A row on which it fails leaves by the error policy; under `null` the row stays
and takes no part in the aggregate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.expr.functions import UserFunction
from dbsp.operators.columns import column_of
from dbsp.operators.failures import report
from dbsp.operators.monotone_bounds import MonotoneBounds
from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.arrays import bool_values, gather, valid_rows
from dbsp.zset.batch import Batch
from dbsp.zset.schema import INT64, Column, Schema

Integers = npt.NDArray[np.int64]


@stored("Vectors", "function reads shown where names rows")
@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors(Operator):
    """Add the columns `names`: the function's result, or 0 where `where` is not true.

    The function gets the columns `reads` under the names `shown`.
    """

    depends_on_time: ClassVar[Time] = Time.NOTHING
    function: UserFunction
    reads: tuple[str, ...]
    shown: tuple[str, ...]
    where: str | None
    names: tuple[str, ...]
    rows: Schema

    def __str__(self) -> str:
        """Return the function and its columns as text."""
        return f"vectors {self.function.name}({', '.join(self.reads)})"

    @property
    def schema(self) -> Schema:
        """Return the schema of the rows, followed by the vectors."""
        return Schema((*self.rows.columns, *(Column(name, INT64) for name in self.names)))

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the input, whose columns stay."""
        return inputs[0]

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the changed rows with their vectors."""
        (batch,) = inputs
        if len(batch) == 0:
            return Batch.empty(self.schema)
        chosen = self._chosen(batch)
        found, reasons = by_halves(lambda rows: self._call(batch, chosen[rows]), len(chosen), len(self.names))
        vectors, valid = np.zeros((len(batch), len(self.names)), np.int64), np.ones(len(batch), np.bool_)
        vectors[chosen] = found
        failed = {int(chosen[row]): reason for row, reason in reasons.items()}
        valid[list(failed)] = False
        made = (column_of(np.ascontiguousarray(vectors[:, i]), valid, INT64) for i in range(len(self.names)))
        whole = Batch(schema=self.schema, columns=(*batch.columns, *made), weights=batch.weights)
        if not failed or context.error_policy == "null":
            return whole
        report(context, batch, batch.schema.names, batch.weight, failed)
        return whole.loose().filter(valid)

    def _chosen(self, batch: Batch) -> Integers:
        """Return the indices of the rows for which `where` is true; all rows without `where`."""
        if self.where is None:
            return np.arange(len(batch))
        array = batch.column(self.where)
        valid = valid_rows(array)
        return np.flatnonzero(bool_values(array) if valid is None else bool_values(array) & valid)

    def _call(self, batch: Batch, rows: Integers) -> Integers:
        """Return the function's result for some rows, checked."""
        columns = [gather(batch.column(name), rows) for name in self.reads]
        made = self.function.callable(pa.table(columns, names=list(self.shown)))
        return as_vectors(made, len(rows), len(self.names))


def as_vectors(made: Any, rows: int, width: int) -> Integers:
    """Return a user's result as int64 (rows, width); raise `TypeError` or `ValueError` if it has another type or shape."""
    if isinstance(made, list | tuple):
        made = np.column_stack([_column(part) for part in made])
    array = np.asarray(made)
    if array.ndim == 1 and width == 1:
        array = array.reshape(-1, 1)
    if array.dtype.kind not in "iub":
        raise TypeError(f"the vectors must be whole numbers: dtype={array.dtype}")
    if array.shape != (rows, width):
        raise ValueError(f"the vectors have another shape: got={array.shape} want={(rows, width)}")
    return array.astype(np.int64)


def _column(part: Any) -> npt.NDArray[Any]:
    """Return an Arrow array or a numpy array as numpy."""
    if isinstance(part, pa.ChunkedArray):
        part = part.combine_chunks()
    return np.asarray(part.to_numpy(zero_copy_only=False) if isinstance(part, pa.Array) else part)


def by_halves(compute: Callable[[Integers], Integers], rows: int, width: int) -> tuple[Integers, dict[int, str]]:
    """Return the results of all rows, zeros where a row failed, and the reasons; bisect a range in which a row fails."""
    result = np.zeros((rows, width), np.int64)
    reasons: dict[int, str] = {}
    waiting = [(0, rows)] if rows else []
    while waiting:
        low, high = waiting.pop()
        try:
            result[low:high] = compute(np.arange(low, high))
        except Exception as error:  # noqa: BLE001 (user code may raise anything; the row fails, not the pipeline)
            if high - low > 1:
                middle = (low + high) // 2
                waiting += [(middle, high), (low, middle)]
            else:
                reasons[low] = f"the function raised {type(error).__name__}: {error}"
    return result, reasons
