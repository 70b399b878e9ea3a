"""What holds for every law: blocks of window functions are so small that partitions of a few rows have several."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dbsp.operators.order import blocks


@pytest.fixture(scope="package", autouse=True)
def small_blocks() -> Iterator[None]:
    """Blocks of two rows, cut when they come to hold four."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "block_rows", lambda _: 2)
        yield
