"""Find import cycles of the product: modules that nobody can read, test or load without one another.

Every import of one of our own modules counts, at the head, in a function or below `TYPE_CHECKING`. So does a text that names a
module: `importlib.import_module("dbsp.expr.catalog")`, also where its end is computed. A package counts as its
`__init__`; an import from `dbsp.io.chunk` counts for that module, not for the package `dbsp.io` around it.
`python -m tools.import_cycles [ROOT]` prints the cycles.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.syntax import parsed, statements

ROOTS = {"dbsp": "dbsp", "dbsp.storage": "storage", "dbsp.io": "io", "dbsp.coordinator": "coordinator"}
"""The folder of each top package, as `pyproject.toml` maps them."""


def sources(root: Path) -> dict[str, ast.Module]:
    """Return the parsed source of every module of the product, by its import name."""
    found = {}
    for package, folder in ROOTS.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = [package, *path.relative_to(root / folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = parsed(path)[1]
    return found


# What only starts another module: console scripts, child processes, the first use of a public name.
STARTS = frozenset({"dbsp", "dbsp.coordinator.commands"})


def imported(tree: ast.Module, ours: Mapping[str, object]) -> Iterator[str]:
    """Yield our own modules that a module imports anywhere in its text."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in ours)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in ours:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in ours else node.module


def named(tree: ast.Module, ours: Mapping[str, object]) -> Iterator[str]:
    """Yield our own modules that a call of `import_module` names in a text, whole or up to a part that is computed."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if "import_module" not in (getattr(function, "id", None), getattr(function, "attr", None)):
            continue
        match node.args:
            case [ast.Constant(value=str(name)), *_] if name in ours:
                yield name
            case [ast.JoinedStr(values=[ast.Constant(value=str(begin)), *_]), *_]:
                yield from (name for name in ours if name.startswith(begin) and begin.startswith("dbsp."))


def graph(modules: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    return {
        name: ({*imported(tree, modules), *named(tree, modules)} if name not in STARTS else set()) - {name}
        for name, tree in modules.items()
    }


def cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that reach one another (strongly connected components), the largest first.

    Source: Tarjan, Depth-first search and linear graph algorithms, 1972; the recursion is a list, since paths are long.
    """
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    waiting: list[str] = []
    found: list[list[str]] = []
    for start in edges:
        if start in order:
            continue
        path = [(start, iter(sorted(edges[start])))]
        order[start] = lowest[start] = len(order)
        waiting.append(start)
        while path:
            name, rest = path[-1]
            for following in rest:
                if following not in order:
                    order[following] = lowest[following] = len(order)
                    waiting.append(following)
                    path.append((following, iter(sorted(edges[following]))))
                    break
                if following in waiting:
                    lowest[name] = min(lowest[name], order[following])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[name])
                if lowest[name] == order[name]:
                    at = waiting.index(name)
                    found.append(sorted(waiting[at:]))
                    del waiting[at:]
    return sorted((group for group in found if len(group) > 1), key=lambda group: (-len(group), group))


def main() -> None:
    """Print the cycles of the tree, and how many modules they hold."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    edges = graph(sources(root))
    for group in cycles(edges):
        print(f"{len(group)} modules in one cycle:")
        for name in group:
            print(f"  {name} -> {', '.join(sorted(edges[name] & set(group)))}")


if __name__ == "__main__":
    main()
