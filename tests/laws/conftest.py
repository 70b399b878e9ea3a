"""What holds for every law: what is done where there is much of something is done where there is little."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import as_if_large


@pytest.fixture(scope="package", autouse=True)
def small_blocks() -> Iterator[None]:
    """Windows have several blocks."""
    with as_if_large.small_blocks():
        yield


@pytest.fixture(scope="package", autouse=True)
def long_groups() -> Iterator[None]:
    """Groups of a few rows are long."""
    with as_if_large.long_groups():
        yield


@pytest.fixture(scope="module", autouse=True)
def coded_texts() -> Iterator[None]:
    """Texts are codes here and there."""
    with as_if_large.coded_texts():
        yield
