"""What is done where there is much of something, done where there is little: for tests whose data are small.

Blocks of window functions are so small that partitions of a few rows have several, and groups of three rows are long: the traces
of all operators keep live starts. Texts are held as codes wherever an odd number of them comes in, and written as codes
wherever some are the same: operators meet coded columns beside plain ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa
import pytest

from dbsp.operators.order import blocks
from dbsp.runtime import session
from dbsp.trace import live_starts, spine
from dbsp.trace.memory import MemoryDatabase
from dbsp.zset import batch, coded
from dbsp.zset.schema import BINARY, STRING, Column


@contextmanager
def small_blocks() -> Iterator[None]:
    """Blocks of two rows, cut when they come to hold four."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "block_rows", lambda _: 2)
        yield


@contextmanager
def long_groups() -> Iterator[None]:
    """Fronts of groups of three rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spine, "ROWS_MIN", 3)
        yield


@contextmanager
def coded_texts() -> Iterator[None]:
    """A dictionary for a few rows."""
    made = batch._column

    def sometimes_coded(column: Column, value: Any) -> pa.Array:
        array = made(column, value)
        texts = column.type in {STRING, BINARY} and not coded.is_coded(array)
        return array.dictionary_encode() if texts and len(array) % 2 else array

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "_column", sometimes_coded)
        patch.setattr(coded, "ROWS_MIN", 1)
        patch.setattr(coded, "SHORTER", (0, 1))
        yield


@contextmanager
def many_runs() -> Iterator[None]:
    """Traces merge their runs row by row, and keep live starts of several keys."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spine, "SHORT_ROWS", 0)
        patch.setattr(spine, "FUEL_FLOOR_ROWS", 5)
        patch.setattr(live_starts, "KEYS_MIN", 2)
        yield


@contextmanager
def small_chunks() -> Iterator[None]:
    """Databases in memory cut batches of a few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "MemoryDatabase", lambda made: MemoryDatabase(made, chunk_bytes_max=500))
        yield


@contextmanager
def as_if_large() -> Iterator[None]:
    """All of it."""
    with ExitStack() as stack:
        for each in (small_blocks, long_groups, coded_texts, many_runs, small_chunks):
            stack.enter_context(each())
        yield
