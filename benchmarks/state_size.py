"""How large the state is on disk, beside the same rows as plain Arrow columns: real databases, one worker.

`python -m benchmarks.state_size [--rows 4000000]`. Steps of 100 k rows, a version committed after every ten. Two states whose
rows are known: `counts`, so many keys in no order with the number of their rows (16 bytes a row as Arrow), and `bids`, those
of so many Nexmark events as they are kept to be shown (texts, some 150 bytes a row). After each commit in the second half:

- *overhead*: bytes that the version holds, less Arrow's, per row (words that rows are sorted by, weights, encoding,
  checksums, and rows that are there twice while a merge is under way);
- *on disk*: bytes that the worker's files take there (the version before it, what steps have made since, pages that are free
  again), by Arrow's alone, and by Arrow's with the overhead that is allowed.

The worst of them counts. The targets are 24 bytes a row, and 2.5 times what Arrow's bytes and that overhead are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import dbsp
from benchmarks import report
from benchmarks.durable import DurablePipeline
from benchmarks.nexmark.generator import Generator
from benchmarks.nexmark.tables import bid
from dbsp.runtime.inprocess import InProcessRuntime

STEP_ROWS, STEPS_PER_VERSION = 100_000, 10
OVERHEAD_BYTES, IN_ALL = 24, 2.5
COUNT_BYTES = 16


@dataclass(frozen=True, slots=True)
class State:
    """A circuit whose state is known: its input step by step, what of that is kept, and what a row of it takes as Arrow."""

    circuit: dbsp.Circuit
    steps: Callable[[int], Iterator[pa.Table]]
    kept_rows: Callable[[pa.Table], int]
    row_bytes: Callable[[pa.Table], float]


def counts() -> State:
    """`select k, count(*) from t group by k`, every other key twice."""
    table = dbsp.table("t", {"k": dbsp.INT64})
    view = table.group_by("k").aggregate(n=dbsp.count())

    def steps(rows: int) -> Iterator[pa.Table]:
        keys = np.random.default_rng(7).permutation(rows)
        for first in range(0, rows, STEP_ROWS):
            new = keys[first : first + STEP_ROWS]
            yield pa.table({"k": np.concatenate([new, new[::2]])})

    circuit = dbsp.circuit("counts", {"v": view}, materialize=False)
    return State(circuit, steps, lambda table: pc.count_distinct(table["k"]).as_py(), lambda _: COUNT_BYTES)


def bids() -> State:
    """All bids, kept to be shown."""

    def steps(rows: int) -> Iterator[pa.Table]:
        for batch in Generator().batches(rows, STEP_ROWS):
            yield batch["bid"]

    circuit = dbsp.circuit("bids", {"v": bid})
    return State(
        circuit, steps, lambda table: table.num_rows, lambda table: table.combine_chunks().nbytes / table.num_rows
    )


def on_disk(folder: Path) -> int:
    """Bytes that the files below a folder take; those that were never written take none."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """After a commit: rows, their bytes as Arrow, bytes of the version and of the worker's files."""

    rows: int
    plain: float
    version: int
    files: int

    @property
    def overhead(self) -> float:
        """Bytes of the version per row beyond Arrow's."""
        return (self.version - self.plain) / self.rows

    @property
    def by_plain(self) -> float:
        """Bytes on disk by Arrow's."""
        return self.files / self.plain

    @property
    def by_allowed(self) -> float:
        """Bytes on disk by Arrow's with the overhead that is allowed."""
        return self.files / (self.plain + OVERHEAD_BYTES * self.rows)


def sizes(state: State, rows: int) -> list[Size]:
    """After each commit of the second half."""
    found: list[Size] = []
    with tempfile.TemporaryDirectory(prefix="state-size-") as folder:
        pipeline = DurablePipeline(Path(folder), state.circuit, 1, InProcessRuntime)
        try:
            kept, plain = 0, 0.0
            for number, step in enumerate(state.steps(rows), 1):
                pipeline.push(step)
                pipeline.step()
                new = state.kept_rows(step)
                kept, plain = kept + new, plain + new * state.row_bytes(step)
                if number % STEPS_PER_VERSION:
                    continue
                version = pipeline.commit()
                if 2 * number * STEP_ROWS >= rows:
                    files = on_disk(Path(folder) / "workers")
                    found.append(Size(rows=kept, plain=plain, version=version, files=files))
        finally:
            pipeline.close()
    return found


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    arguments = parser.parse_args()
    figures: dict[str, object] = {"rows": arguments.rows}
    targets: dict[str, report.Target] = {}
    for name, made in {"counts": counts(), "bids": bids()}.items():
        found = sizes(made, arguments.rows)
        overhead, allowed = f"{name}_overhead_bytes_per_row", f"{name}_on_disk_by_allowed"
        figures |= {
            overhead: max(size.overhead for size in found), allowed: max(size.by_allowed for size in found),
            f"{name}_on_disk_by_arrow": max(size.by_plain for size in found),
        }  # fmt: skip
        targets |= {overhead: report.at_most(OVERHEAD_BYTES), allowed: report.at_most(IN_ALL)}
    report.keep("state_size", figures, targets)


if __name__ == "__main__":
    main()
