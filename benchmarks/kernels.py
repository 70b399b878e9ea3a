"""The kernels against their plain numpy twins: `python -m benchmarks.kernels` prints times and ratios."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import report
from dbsp.zset import kernels
from dbsp.zset.arrays import bytes_view
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.encoding import decode, encode
from dbsp.zset.hashing import hash_columns
from dbsp.zset.kernels import compile as compile_module
from dbsp.zset.merge import merge
from dbsp.zset.schema import INT64, STRING, Arrangement, Schema
from tests.zset import numpy_twins


def best_ms(run: Callable[[], Any], repeats: int = 7) -> float:
    """The fastest of some runs, in processor time: other processes count less."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times) * 1000


def cases(rng: np.random.Generator) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """(name, kernel, arguments)."""
    million = rng.integers(0, 1 << 63, 1_000_000).astype(np.uint64) << np.uint64(1)
    yield "hash 1 M words", "hash_words", (million,)
    yield "combine 1 M hashes", "combine_hashes", (million, million)
    for n in (10_000, 100_000, 1_000_000):
        yield f"argsort {n:,}", "argsort_hash", (million[:n],)
    keys = million[rng.integers(0, 1000, 100_000)]
    yield "argsort3 100,000 of 1,000 keys", "argsort3", (keys, None, million[:100_000])
    yield "argsort3 100,000 of one key", "argsort3", (keys * np.uint64(0), None, million[:100_000])
    for n in (100_000, 1_000_000):
        left, right = np.sort(million[:n]), np.sort(million[:n] + np.uint64(1))
        ones = np.ones((n, 1), np.int64)
        yield f"merge {n:,} with {n:,}", "merge_sums", ((left, None, None), ones, (right, None, None), ones)
    hay = np.sort(rng.integers(0, 1 << 63, 20_000_000).astype(np.uint64) << np.uint64(1))
    for n in (1000, 100_000):
        yield f"find {n:,} in 20 M", "equal_ranges", (np.sort(million[:n]), hay)
    yield "find 100,000 in 1 M", "equal_ranges", (np.sort(million[:100_000]), np.sort(million))
    repeats = np.sort(million[rng.integers(0, 300_000, 1_000_000)])
    starts = numpy_twins.run_starts(repeats)
    yield "starts of runs, 1 M", "run_starts", (repeats,)
    yield "sum runs, 1 M", "sum_runs", (np.ones((1_000_000, 1), np.int64), starts)
    yield "expand 300 k ranges", "expand_ranges", (starts[:-1], starts[1:])
    yield "partition 1 M by 8", "partition_by", ((million >> np.uint64(61)).astype(np.int64), 8)
    strings = bytes_view(pa.array([f"customer-{i:08d}" for i in range(100_000)]))
    yield "hash 100 k strings", "hash_bytes", strings
    yield "order 100 k strings", "leading_words", strings
    rows = np.arange(100_000)
    yield "compare 100 k strings", "equal_bytes", (strings, rows, strings, rows)


def wide_batch(rng: np.random.Generator, schema: Schema, rows: int) -> Batch:
    """Rows of (whole number, string, whole number)."""
    keys = rng.integers(0, 10_000, rows)
    return Batch.of(schema, [keys, pa.array([f"customer-{key:08d}" for key in keys]), np.arange(rows)])


def batch_cases(rng: np.random.Generator) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(name, run) of whole batches."""
    for name, n in (("10 k", 10_000), ("100 k", 100_000), ("1 M", 1_000_000)):
        schema = Schema.of({"k": INT64})
        arrangement = Arrangement(schema=schema, key=("k",))
        loose = [Batch.of(schema, [rng.integers(0, 1_000_000, n)]) for _ in range(2)]
        left, right = (arrange(each, arrangement) for each in loose)
        yield f"hash {name} int64", partial(hash_columns, loose[0].columns, n)
        yield f"arrange {name} int64", partial(arrange, loose[0], arrangement)
        yield f"merge {name} + {name} int64", partial(merge, left, right)
    n = 100_000
    wide = Schema.of({"k": INT64, "name": STRING, "v": INT64})
    for key in (("k",), ("name",), wide.names):
        arrangement = Arrangement(schema=wide, key=key)
        loose = [wide_batch(rng, wide, n) for _ in range(2)]
        left, right = (arrange(each, arrangement) for each in loose)
        named = ",".join(key)
        yield f"arrange 100 k (k, name, v) by {named}", partial(arrange, loose[0], arrangement)
        yield f"merge 100 k + 100 k by {named}", partial(merge, left, right)
    data = encode(left)
    yield "concat 100 k + 100 k", partial(concat, [left, right])
    yield f"encode 100 k, {len(data):,} bytes", partial(encode, left)
    yield "decode and verify", partial(decode, data, wide, arrangement)
    yield "decode", partial(decode, data, wide, arrangement, verify=False)


def main() -> None:
    """Print both tables."""
    report.parser(__doc__).parse_args()
    figures: dict[str, object] = {}
    compile_module.compile_all()
    rng = np.random.default_rng(1)
    print(f"{'kernel':<44}{'ms':>10}{'numpy ms':>10}{'ratio':>8}")
    for name, kernel, arguments in cases(rng):
        ours = best_ms(partial(getattr(kernels, kernel), *arguments))
        theirs = best_ms(partial(getattr(numpy_twins, kernel), *arguments), 3)
        print(f"{name:<44}{ours:>10.3f}{theirs:>10.3f}{theirs / ours:>8.1f}")
        figures[f"{name}: ratio to numpy"] = round(theirs / ours, 1)
    print(f"\n{'batch':<44}{'ms':>10}")
    for name, run in batch_cases(rng):
        print(f"{name:<44}{best_ms(run):>10.3f}")
    report.keep("kernels", figures)


if __name__ == "__main__":
    main()
