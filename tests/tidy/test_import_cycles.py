"""The check of import cycles finds each way to write one; `test_whole_tree` runs it."""

from __future__ import annotations

import ast

import pytest

from tools import import_cycles

ONE = "import dbsp.b\n"
CYCLES = {
    "at the head": "from dbsp.a import x\n",
    "of a package": "from dbsp import a\n",
    "in a function": "def f():\n    import dbsp.a\n",
    "for types alone": "if TYPE_CHECKING:\n    from dbsp.a import X\n",
    "in a text": "importlib.import_module('dbsp.a')\n",
    "in a text that is computed": "def f(name):\n    importlib.import_module(f'dbsp.{name}')\n",
}


@pytest.mark.parametrize("other", CYCLES.values(), ids=CYCLES.keys())
def test_a_planted_cycle_is_found(other: str) -> None:
    modules = {"dbsp": "", "dbsp.a": ONE, "dbsp.b": other, "dbsp.c": "from dbsp.a import y\n"}
    parsed = {name: ast.parse(text) for name, text in modules.items()}
    assert import_cycles.cycles(import_cycles.graph(parsed))[0][:2] == ["dbsp.a", "dbsp.b"]


def test_a_long_cycle_is_one_and_two_are_two() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a", "e"}}
    assert import_cycles.cycles(edges) == [["a", "b", "c"], ["d", "e"]]


def test_modules_that_need_one_another_in_one_direction_are_fine() -> None:
    parsed = {"dbsp.a": ast.parse("from dbsp.b import c\nimport os\n"), "dbsp.b": ast.parse("import dbsp.c\n")}
    assert import_cycles.cycles(import_cycles.graph({**parsed, "dbsp.c": ast.parse("")})) == []
