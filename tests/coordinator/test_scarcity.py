"""What no process survives is a refusal at the door: memory that is not there, descriptors that are used up."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from dbsp.coordinator.service import Service
from dbsp.coordinator.serving import admission
from dbsp.coordinator.serving.admission import DESCRIPTORS_RESERVE, descriptors_left, free_bytes, refuse_scarcity
from dbsp.errors import OverloadedError


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """As many descriptors as are open, and half of the reserve."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = sum(1 for _ in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + DESCRIPTORS_RESERVE // 2, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_push_that_needs_more_than_is_free_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_bytes()
    assert free is not None
    refuse_scarcity(1000)
    with pytest.raises(OverloadedError, match="not enough memory for this push: bytes="):
        refuse_scarcity(free // admission.MEMORY_PER_BYTE)
    monkeypatch.setattr(admission, "free_bytes", lambda: None)
    refuse_scarcity(1 << 60)  # where nobody says how much there is


@pytest.mark.usefixtures("few_descriptors")
def test_descriptors_are_kept_for_the_engine(few_descriptors: None) -> None:
    left = descriptors_left()
    assert left is not None
    assert 0 < left < DESCRIPTORS_RESERVE
    with pytest.raises(OverloadedError, match="too many files and connections open: descriptors_left="):
        refuse_scarcity(10)


@pytest.mark.usefixtures("few_descriptors")
def test_a_full_table_of_descriptors_is_a_refusal_too() -> None:
    opened = []
    with suppress(OSError):
        while True:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    try:
        with pytest.raises(OverloadedError, match="descriptors_left=0"):
            refuse_scarcity(10)
    finally:
        for each in opened:
            os.close(each)


def test_http_says_so_and_takes_nothing(
    service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "free_bytes", lambda: 1000)
    row = [{"id": 3, "customer": "a", "amount": 10}]
    answer = client.post("/v1/tables/orders/rows", json=row)
    assert answer.status_code == 429
    assert "not enough memory" in answer.text
    assert service.lag_rows() == 0
    monkeypatch.undo()
    assert client.post("/v1/tables/orders/rows?wait=true", json=row).json()["processed"]
