"""Every block of code of every page has a language, and one that is not run gives the reason (tests/docs runs the others)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import RUN, SHOWN, blocks_of, pages

ROOT = Path(__file__).parents[2]


def wrong(text: str) -> Iterator[str]:
    """Yield what is wrong with the blocks of a page."""
    for block in blocks_of(text):
        if block.language not in RUN | SHOWN:
            yield f"line {block.line}: name a language ({', '.join(sorted(RUN | SHOWN))}) after the fence"
        if block.reason == "":
            yield f"line {block.line}: say why the block is not run"


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: page.name)
def test_every_block_has_a_language(page: Path) -> None:
    assert list(wrong(page.read_text(encoding="utf-8"))) == []


def test_a_wrong_block_is_found() -> None:
    assert len(list(wrong('```\ncode\n```\n\n```python title="not run: "\n1\n```\n'))) == 2
    assert list(wrong('```text\ncode\n```\n\n```console title="not run: needs a broker"\n$ a\n```\n')) == []
