"""What holds for every law: what is done where there is much of something is done where there is little.

Blocks of window functions are so small that partitions of a few rows have several, and groups of three rows are long: the traces
of all operators keep fronts. Texts are held as codes wherever an odd
number of them comes in, and written as codes wherever some are the same: operators meet coded columns beside plain ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from dbsp.operators.order import blocks
from dbsp.trace import spine
from dbsp.zset import batch, coded
from dbsp.zset.schema import BINARY, STRING, Column


@pytest.fixture(scope="package", autouse=True)
def small_blocks() -> Iterator[None]:
    """Blocks of two rows, cut when they come to hold four."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "block_rows", lambda _: 2)
        yield


@pytest.fixture(scope="package", autouse=True)
def long_groups() -> Iterator[None]:
    """Fronts of groups of three rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spine, "ROWS_MIN", 3)
        yield


@pytest.fixture(scope="module", autouse=True)
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
