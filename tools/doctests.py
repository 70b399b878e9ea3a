"""Find and run doctests by module name, in the four code folders and the examples.

The command `pytest --doctest-modules io` would import the folder as the standard `io`, and walking `dbsp.__path__`
misses the mapped folders. So names are made from the files: `io/formats/json.py` is `dbsp.io.formats.json`.
"""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

ROOTS = {
    "dbsp": "dbsp",
    "storage": "dbsp.storage",
    "io": "dbsp.io",
    "coordinator": "dbsp.coordinator",
    "examples": "examples",
}


def module_names(root: Path) -> Iterator[str]:
    """Yield the import names of all modules under the root, in the order of their paths."""
    for folder, prefix in ROOTS.items():
        for path in sorted((root / folder).rglob("*.py")):
            if path.name == "__main__.py":
                continue
            parts = path.relative_to(root / folder).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            yield ".".join((prefix, *parts))


def run(name: str) -> doctest.TestResults:
    """Import a module by name, run its examples, and return the counts."""
    module = importlib.import_module(name)
    if module.__file__ is None or ">>>" not in Path(module.__file__).read_text(encoding="utf-8"):
        return doctest.TestResults(0, 0)  # the search looks for the line of every class and method, which takes longer
    return doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
