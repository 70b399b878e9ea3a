"""Each house rule turns red on a planted error; `test_whole_tree` applies them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools import tidy

ROOT = Path(__file__).parents[2]


def module(text: str, path: str) -> tidy.Module:
    """A module made of text."""
    return tidy.Module(root=Path(path).parts[0], path=Path(path), text=text, tree=ast.parse(text))


def test_every_folder_is_looked_at() -> None:
    seen = {path.relative_to(ROOT).parts[0] for path in tidy.paths(ROOT)}
    assert seen >= {"dbsp", "storage", "io", "coordinator", "examples", "tools"}


LONG = "def f():\n" + "    x = 1\n" * 60

PLANTED = [
    (tidy.lengths, LONG, "dbsp/a.py", "function f of 61 lines"),
    (tidy.lengths, "x = 1\n" * 601, "dbsp/a.py", "module of 601 lines"),
    (tidy.heads, "import os\n", "dbsp/a.py", "head must say"),
    (tidy.heads, '"""Things."""\n', "dbsp/a.py", "head must say"),
    (tidy.imports, "import storage\n", "tests/a.py", "import storage"),
    (tidy.imports, "from coordinator.api import x\n", "coordinator/a.py", "import coordinator.api"),
    (tidy.imports, "from io.formats import json\n", "io/a.py", "import io.formats"),
    (tidy.imports, "def f():\n    import dbsp.storage.lmdb\n", "dbsp/a.py", "dbsp/ must not import dbsp.storage"),
    (tidy.imports, "from dbsp import storage\n", "io/a.py", "io/ must not import dbsp.storage"),
    (tidy.exports, "__all__ = ['gone']\n", "dbsp/a.py", "names gone"),
    (tidy.words, "# a multiset of rows\n", "dbsp/a.py", "'multiset'"),
    (tidy.late_imports, "def f():\n    import ast  # noqa: PLC0415\n", "dbsp/a.py", "says why"),
]


@pytest.mark.parametrize(("rule", "text", "path", "message"), PLANTED)
def test_a_planted_error_is_found(
    rule: Callable[[tidy.Module], Iterator[str]], text: str, path: str, message: str
) -> None:
    found = list(rule(module(text, path)))
    assert found
    assert message in found[0]


def test_a_class_name_that_is_there_twice_is_found() -> None:
    texts = {
        "dbsp/a.py": "class Shape: ...",
        "io/b.py": "class Shape: ...\nclass _Own: ...",
        "dbsp/c.py": "class _Own: ...",
    }
    found = list(tidy.class_names(module(text, path) for path, text in texts.items()))
    assert [message.split(":", 2)[2].strip() for message in found] == ["class Shape has the name of one in dbsp/a.py"]


def test_what_is_allowed_stays_allowed() -> None:
    lines = ['"""Reads bytes for others."""', "import io", "from io import BytesIO", "from dbsp.storage import x"]
    text = "\n".join([*lines, '__all__ = ["x"]', ""])
    assert [finding for rule in tidy.RULES for finding in rule(module(text, "coordinator/a.py"))] == []
    assert list(tidy.lengths(module(LONG.replace("():", "():  # long: a table", 1), "dbsp/a.py"))) == []
