"""Window functions on growing state: `python -m benchmarks.windows [--large]` prints milliseconds per step of 100 changed rows.

The state is loaded straight into the trace; then each function is asked to follow small steps. Rows change anywhere, but for
`row_number` at the end of their partition ("newest"), where few rows shift.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from benchmarks import report
from dbsp.operators.operator import StepContext
from dbsp.operators.order.window import WindowOperator
from dbsp.operators.order.window_calls import WindowCall
from dbsp.operators.order.window_places import Frame
from dbsp.store import CheckpointId, StepTransaction, TraceSpec
from dbsp.trace.memory import MemoryDatabase
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.schema import FLOAT64, INT64, Column, OrderBy, Schema

ROWS = Schema((Column("k", INT64, nullable=False), Column("at", INT64, nullable=False), Column("x", FLOAT64)))
APART = 1000
CHANGED, STEPS, LOAD = 100, 15, 250_000
CALLS = {
    "lag 1": (WindowCall(name="v", function="lag", column="x", offset=1), False),
    "rolling sum, 10 rows": (
        WindowCall(name="v", function="sum", column="x", frame=Frame(kind="rows", preceding=9, following=0)),
        False,
    ),
    "rolling max, range of 10 rows": (
        WindowCall(name="v", function="max", column="x", frame=Frame(kind="range", preceding=10_000, following=0)),
        False,
    ),
    "row_number, newest": (WindowCall(name="v", function="row_number"), True),
}


class Node:
    """An operator's state of one step, for the benchmark."""

    def __init__(self, transaction: StepTransaction, trace: TraceSpec) -> None:
        """The one trace."""
        self.transaction, self.trace = transaction, trace

    def spine(self, index: int) -> Spine:  # noqa: ARG002 (there is one)
        """The trace."""
        return self.transaction.spine(self.trace)

    def retention_bound(self, index: int) -> RetentionBound | None:  # noqa: ARG002 (protocol)
        """Nothing is closed."""
        return None

    def append(self, index: int, batch: Batch, retention: RetentionBound | None = None) -> None:  # noqa: ARG002 (there is one)
        """Add to it."""
        self.transaction.append(self.trace, batch, retention)


class Bench:
    """A database that was loaded with `rows` rows in `groups` partitions, and operators run on it."""

    def __init__(self, rows: int, groups: int) -> None:
        """Load it; every row of a partition is about `APART` behind the one before."""
        first = CheckpointId(run="bench", epoch=1, step=0, layout_version=1, fingerprint="")
        self.database = MemoryDatabase(first)
        self.database.open(0, epoch=1)
        self.rng = np.random.default_rng(rows)
        self.rows, self.groups, self.steps = rows, groups, 0
        window = self.window(CALLS["lag 1"][0])
        (arrangement,) = window.arrangements()
        self.trace = TraceSpec(id=0, arrangement=arrangement)
        for begin in range(0, rows, LOAD):
            place = np.arange(begin, min(rows, begin + LOAD))
            batch = self.batch(place % groups, place // groups * APART)
            with self.database.begin(1, self.steps, 0, (self.trace,)) as transaction:
                transaction.append(self.trace, arrange(batch, arrangement))
                transaction.finish()
            self.steps += 1

    def batch(self, keys: np.ndarray, at: np.ndarray) -> Batch:
        """Rows of weight 1."""
        return Batch.of(ROWS, [keys.astype(np.int64), at.astype(np.int64), self.rng.normal(size=len(keys))])

    def window(self, call: WindowCall) -> WindowOperator:
        """The operator of one function."""
        type_ = INT64 if call.function == "row_number" else FLOAT64
        schema = Schema((*ROWS.columns, Column(call.name, type_)))
        return WindowOperator(input=ROWS, partition=("k",), order=(OrderBy("at"),), calls=(call,), schema=schema)

    def step_ms(self, call: WindowCall, newest: bool) -> tuple[float, float]:
        """The median processor time of a step, and how many rows it gave."""
        operator, times, given = self.window(call), [], []
        for _ in range(STEPS):
            keys = self.rng.integers(0, self.groups, CHANGED)
            deep = self.rows // self.groups * APART
            low = deep - 2 * APART if newest else 0
            delta = self.batch(keys, self.rng.integers(low, deep, CHANGED))
            context = StepContext(number=self.steps)
            with self.database.begin(1, self.steps, 0, (self.trace,)) as transaction:
                started = time.process_time()
                given.append(len(operator.step(context, Node(transaction, self.trace), (delta,))))
                times.append(time.process_time() - started)
                transaction.finish()
            self.steps += 1
        return float(np.median(times)) * 1000, float(np.mean(given))


def main(arguments: list[str] | None = None) -> int:
    """Print a line per function, groups and size."""
    parser = report.parser(__doc__)
    parser.add_argument("--large", action="store_true", help="up to 10 M rows")
    sizes = (1_000_000, 3_000_000, 10_000_000) if parser.parse_args(arguments).large else (300_000, 1_000_000)
    figures: dict[str, object] = {}
    for groups in (1, 1000):
        for rows in sizes:
            bench = Bench(rows, groups)
            for name, (call, newest) in CALLS.items():
                ms, given = bench.step_ms(call, newest)
                figures[f"{name}, {groups} partitions, {rows} rows: ms"] = round(ms, 2)
                print(
                    f"{rows:>12,} rows {groups:>6,} partitions  {name:<32}{ms:8.1f} ms {given:8.0f} rows out",
                    flush=True,
                )
    report.keep("windows", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
