"""The paths of ARCHITECTURE.md are true: each function exists, and a line above it reaches it.

Reached means: the function above names it, or a function of the same file does that the one above names (and so on). Where
a value comes through a protocol, the name of the method is what counts. So a step that was moved or renamed is noticed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^(\d+)\. `([\w/]+\.py)` `([\w.]+)`: (Thread: )?.+\.$", re.MULTILINE)
LINES_MAX = 10
Function = ast.FunctionDef | ast.AsyncFunctionDef
Line = tuple[str, str, bool]
"""File, function, whether another thread takes over there."""


def paths(text: str) -> dict[str, list[Line]]:
    """Return the paths by their headings."""
    _, _, rest = text.partition("## Four paths through the modules")
    section, _, _ = rest.partition("\n## ")
    found: dict[str, list[Line]] = {}
    for part in section.split("\n### ")[1:]:
        heading, _, body = part.partition("\n")
        numbered = LINE.findall(body)
        assert [int(number) for number, *_ in numbered] == list(range(1, len(numbered) + 1))
        assert len(numbered) == len(re.findall(r"^\d+\. ", body, re.MULTILINE)), "a line of another form"
        found[heading] = [(file, name, bool(thread)) for _, file, name, thread in numbered]
    return found


@cache
def functions(file: str) -> dict[str, Function]:
    """Return the functions of a file by their qualified names."""
    return dict(_functions(ast.parse((ROOT / file).read_text(encoding="utf-8")), ""))


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, Function):
            yield f"{prefix}{node.name}", node


@cache
def reached(file: str, name: str) -> frozenset[str]:
    """Return the names that a function names, by itself or through functions of its file."""
    by_last: dict[str, list[Function]] = {}
    for other, node in functions(file).items():
        by_last.setdefault(other.rpartition(".")[2], []).append(node)
    waiting, seen = [functions(file)[name]], set[str]()
    while waiting:
        for node in ast.walk(waiting.pop()):
            said = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
            if said is not None and said not in seen:
                seen.add(said)
                waiting += by_last.get(said, [])
    return frozenset(seen)


def wrong(path: list[Line]) -> list[str]:
    """Return the lines of a path that are not true."""
    found = []
    for at, (file, name, thread) in enumerate(path):
        if not (ROOT / file).is_file() or name not in functions(file):
            found.append(f"{file} has no {name}")
            continue
        above = [line for line in path[:at] if (ROOT / line[0]).is_file() and line[1] in functions(line[0])]
        if above and not thread and not any(name.rpartition(".")[2] in reached(*line[:2]) for line in above):
            found.append(f"{file} {name} is reached from no line above it")
    return found


PATHS = paths((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))


def test_there_are_four_short_paths() -> None:
    assert list(PATHS) == ["A pushed row", "A step on Spark", "A checkpoint", "A warm-up"]
    assert all(3 < len(path) <= LINES_MAX for path in PATHS.values())
    assert all(sum(thread for *_, thread in path) <= 1 for path in PATHS.values())


@pytest.mark.parametrize("heading", PATHS)
def test_a_path_is_true(heading: str) -> None:
    assert wrong(PATHS[heading]) == []


def test_a_path_that_is_not_true_is_noticed() -> None:
    begins = ("dbsp/steps/segment.py", "run_segment", False)
    assert wrong([begins, ("dbsp/steps/segment.py", "gone", False)]) == ["dbsp/steps/segment.py has no gone"]
    apart = [begins, ("coordinator/running/event_loop.py", "EventLoop.run", False)]
    assert wrong(apart) == ["coordinator/running/event_loop.py EventLoop.run is reached from no line above it"]
