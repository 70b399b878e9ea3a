"""House rules that no linter knows: lengths, module heads, layers, mapped folders, exports, words, class names, late imports.

Each rule is a function from one parsed module to findings, so that the tests can plant an error for each. The rule of
names reads all modules. A function
that must be longer has a reason on its first line: `# long: reason`. The command `python -m tools.tidy [ROOT]` prints
the findings.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.syntax import parsed, statements

FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 600
HEAD_WORDS_MIN = 3
CODE = ("dbsp", "storage", "io", "coordinator")
BESIDE = ("examples", "benchmarks", "tools")
MAPPED = ("storage", "io", "coordinator")
STANDARD_IO = "io"  # `import io` is the standard library's, and allowed
OUR_IO = ("formats", "kafka")
MAY_IMPORT = {
    "dbsp": (),
    "storage": ("storage",),
    "io": ("io",),
    "coordinator": MAPPED,
}
FRONT_DOOR = Path("dbsp/__init__.py")
NAMED_BY_DBSP = ("coordinator",)  # `dbsp.Client`, loaded when it is first used
# The right-hand column of the table of words, as far as no library forces the word on us; and marks of unfinished work.
WORDS = re.compile(r"\b(multiset|savepoint|micro-?batch|tumbling job|TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")

LATE_WITHOUT_REASON = re.compile(r"# noqa: [A-Z0-9, ]*PLC0415[A-Z0-9, ]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A source file, read and parsed; `root` is the folder of the repository that contains the file."""

    root: str
    path: Path
    text: str
    tree: ast.Module

    def at(self, line: int, message: str) -> str:
        """Return a finding, as `file:line: message`."""
        return f"{self.path}:{line}: {message}"


def lengths(module: Module) -> Iterator[str]:
    """Find functions of more than 60 lines, not counting their docstrings, and modules of more than 600."""
    lines = module.text.splitlines()
    if len(lines) > MODULE_LINES_MAX:
        yield module.at(1, f"module of {len(lines)} lines; at most {MODULE_LINES_MAX}")
    for node in statements(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)
            if size > FUNCTION_LINES_MAX and "# long: " not in lines[node.lineno - 1]:
                yield module.at(node.lineno, f"function {node.name} of {size} lines; at most {FUNCTION_LINES_MAX}")


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return (first.end_lineno or first.lineno) - first.lineno + 1 if text else 0


def heads(module: Module) -> Iterator[str]:
    """Find modules whose head does not state their purpose in a sentence."""
    head = (ast.get_docstring(module.tree) or "").split("\n\n")[0].strip()
    if len(head.split()) < HEAD_WORDS_MIN or head[-1] not in ".:":
        yield module.at(1, "the module's head must say what it is for, in a sentence")


def imports(module: Module) -> Iterator[str]:
    """Find imports of a higher layer, and imports of a mapped folder by its bare name."""
    for node in statements(module.tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            first, _, rest = name.partition(".")
            layer = rest.partition(".")[0]
            if first in MAPPED and (first != STANDARD_IO or layer in OUR_IO):
                yield module.at(node.lineno, f"import {name}: write dbsp.{name}, the bare name makes a second copy")
            allowed = (*MAY_IMPORT.get(module.root, MAPPED), *(NAMED_BY_DBSP if module.path == FRONT_DOOR else ()))
            if first == "dbsp" and layer in MAPPED and layer not in allowed:
                yield module.at(node.lineno, f"{module.root}/ must not import dbsp.{layer}")


def exports(module: Module) -> Iterator[str]:
    """Find names in `__all__` that the module does not define."""
    bound: set[str] = set()
    listed: list[str] | None = None
    for node in module.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=items) | ast.Tuple(elts=items)):
                listed = [
                    item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)
                ]
            case ast.ImportFrom(module=source, names=names) if source != "__future__":
                bound |= {alias.asname or alias.name for alias in names}
            case ast.Import(names=names):
                bound |= {alias.asname or alias.name for alias in names}
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Assign(targets=targets):
                bound |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                bound.add(name)
            case _:
                pass
    lazy = "__getattr__" in bound
    for name in listed or ():
        if name not in bound and not lazy:
            yield module.at(1, f"__all__ names {name}, which is not there")


def words(module: Module) -> Iterator[str]:
    """Find words that the glossary replaces by others, and marks of unfinished work."""
    for number, line in enumerate(module.text.splitlines(), 1):
        for found in WORDS.finditer(line):
            yield module.at(number, f"the word {found.group()!r} is not used here")


def late_imports(module: Module) -> Iterator[str]:
    """Find imports inside a function without a reason on their line."""
    for number, line in enumerate(module.text.splitlines(), 1):
        if LATE_WITHOUT_REASON.search(line):
            yield module.at(number, "an import inside a function says why on its line")


RULES = (lengths, heads, imports, exports, words, late_imports)


def read(root: Path, path: Path) -> Module:
    """Read and parse a file of the repository."""
    text, tree = parsed(path)
    short = path.relative_to(root)
    return Module(root=short.parts[0], path=short, text=text, tree=tree)


def paths(root: Path, folders: tuple[str, ...] = CODE + BESIDE) -> Iterator[Path]:
    """Yield every Python file of the given folders."""
    for folder in folders:
        yield from sorted((root / folder).rglob("*.py"))


def modules(root: Path, folders: tuple[str, ...] = CODE + BESIDE) -> Iterator[Module]:
    """Yield every module of the given folders."""
    for path in paths(root, folders):
        yield read(root, path)


def class_names(read_modules: Iterable[Module]) -> Iterator[str]:
    """Find public classes of the product that have the name of another one: a reader would take one for the other."""
    first: dict[str, Module] = {}
    for module in read_modules:
        for node in module.tree.body if module.root in CODE else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                other = first.setdefault(node.name, module)
                if other is not module:
                    yield module.at(node.lineno, f"class {node.name} has the name of one in {other.path}")


def findings(root: Path) -> list[str]:
    """Return the findings of all rules; tests are subject to the rule of lengths alone."""
    read_modules = [module for module in modules(root) if module.path.name != "tidy.py"]
    found = [finding for module in read_modules for rule in RULES for finding in rule(module)]
    found += class_names(read_modules)
    return found + [finding for module in modules(root, ("tests",)) for finding in lengths(module)]


if __name__ == "__main__":
    report = findings(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve())
    sys.stdout.writelines(f"{line}\n" for line in report)
    sys.exit(bool(report))
