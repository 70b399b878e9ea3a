"""Hashes, order codes and encodings are what they were when they were first stored."""

from __future__ import annotations

import json

import pytest

from tests.zset.goldens import PATH, current


@pytest.mark.parametrize("name", json.loads(PATH.read_text()))
def test_golden(name: str) -> None:
    """To the bit."""
    assert current()[name] == json.loads(PATH.read_text())[name]


def test_nothing_is_left_out() -> None:
    """Every value has a golden twin."""
    assert current().keys() == json.loads(PATH.read_text()).keys()
