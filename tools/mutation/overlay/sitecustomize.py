"""Starts in every Python whose path has this folder: puts other text under some modules, and notes which mutants are reached.

`DBSP_OVERLAY` names a file of JSON, from module names to files with their text. Child processes inherit it.
`DBSP_REACHED` names a file: processes other than the first one append the numbers of the mutants that they reach to it.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

TEXTS: dict[str, str] = {}
if "DBSP_OVERLAY" in os.environ:
    TEXTS.update(json.loads(Path(os.environ["DBSP_OVERLAY"]).read_text()))
HOME = int(os.environ.setdefault("DBSP_REACHED_BY", str(os.getpid())))

seen: set[int] = set()
"""The mutants that this process has reached; the recorder empties it before each test."""


class _Other(SourceFileLoader):
    """Loads a module from another text; its file keeps its name."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the other text."""
        text = Path(TEXTS[fullname]).read_bytes()
        return compile(text, self.path, "exec", dont_inherit=True)


class _Overlay(MetaPathFinder):
    """Finds the modules that have another text."""

    def __init__(self) -> None:
        self._finding: set[str] = set()

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module as Python does, and exchange its loader."""
        if fullname not in TEXTS or fullname in self._finding:
            return None
        self._finding.add(fullname)
        try:
            spec = find_spec(fullname)
        finally:
            self._finding.remove(fullname)
        if spec is not None and spec.origin is not None:
            spec.loader = _Other(fullname, spec.origin)
        return spec


def reached(*numbers: int) -> None:
    """Note that the code of some mutants runs."""
    for number in numbers:
        if number not in seen:
            seen.add(number)
            if os.getpid() != HOME:
                with Path(os.environ["DBSP_REACHED"]).open("a") as file:
                    file.write(f"{number}\n")


def kernel_reached(*numbers: int) -> Callable[[Any], Any]:
    """Return a decorator of kernels: each call notes that the code of some mutants runs."""

    def decorate(kernel: Any) -> Any:
        class Noted(type(kernel)):  # type: ignore[misc]
            __slots__ = ()

            def __call__(self, *arguments: Any) -> Any:
                reached(*numbers)
                return super().__call__(*arguments)

        return Noted(kernel.function, kernel.signature)

    return decorate


builtins.__reached__ = reached  # type: ignore[attr-defined]
builtins.__kernel_reached__ = kernel_reached  # type: ignore[attr-defined]
if TEXTS:
    sys.meta_path.insert(0, _Overlay())
