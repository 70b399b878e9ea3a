"""Run mypy over the project in a tree of links that has the folders under their import names.

From the root of the repository mypy would take `./io` for the standard `io`. So `build/typed/dbsp/` is made of links:
everything in `dbsp/`, plus `storage`, `io` and `coordinator`, which are `dbsp.storage`, `dbsp.io`, `dbsp.coordinator`.
The command `python tools/typecheck.py [ROOT]` checks another copy of the tree (the tests plant an error in one).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

MAPPED = ("storage", "io", "coordinator")
BESIDE = ("examples", "benchmarks")


def link_tree(root: Path) -> Path:
    """Remove and make `build/typed` under the root, and return its path."""
    tree = root / "build" / "typed"
    shutil.rmtree(tree, ignore_errors=True)
    package = tree / "dbsp"
    package.mkdir(parents=True)
    for entry in (root / "dbsp").iterdir():
        if entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    for name in MAPPED:
        (package / name).symlink_to(root / name)
    for name in (*BESIDE, "tests"):  # benchmarks use a module of the tests
        if (root / name).is_dir():
            (tree / name).symlink_to(root / name)
    return tree


def main(arguments: list[str]) -> int:
    """Check the tree with mypy, and return mypy's exit code."""
    root = Path(arguments[0] if arguments else Path(__file__).parent.parent).resolve()
    tree = link_tree(root)
    packages = [option for name in ("dbsp", *BESIDE) if (tree / name).is_dir() for option in ("-p", name)]
    command = [sys.executable, "-m", "mypy", "--config-file", str(root / "pyproject.toml")]
    command += ["--cache-dir", str(root / ".mypy_cache"), *packages]
    return subprocess.run(command, cwd=tree, check=False).returncode  # noqa: S603 - our own interpreter and arguments


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
