"""Compile every kernel ahead of its first use: `python -m dbsp.zset.kernels.compile`.

Kernels that are compiled already are loaded from the cache, so a second run takes well under a second.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time

from dbsp.zset import kernels as package
from dbsp.zset.kernels.kernel import Kernel, code_folder


def kernels() -> list[Kernel]:
    """Return all kernels of this package."""
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    found = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, Kernel)}
    return list(found.values())


def compile_all() -> int:
    """Compile every kernel, or load it from the cache; return the number of kernels."""
    found = kernels()
    for each in found:
        each.compile()
    return len(found)


def are_compiled() -> bool:
    """Return whether the cache holds every kernel, compiled from the current source."""
    return all(each.is_cached() for each in kernels())


def main() -> None:
    """Compile all kernels, and print the time taken and the folder of the code."""
    started = time.perf_counter()
    count = compile_all()
    took = time.perf_counter() - started
    sys.stdout.write(f"kernels ready: count={count} seconds={took:.1f} folder={code_folder()}\n")


if __name__ == "__main__":
    main()
