"""Loads the circuit that a settings file or a command line names.

The name is `package.module:attribute`, `path/to/file.py:attribute` or `path/to/file.sql`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import SOURCE_SUFFIXES, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from dbsp.circuit.circuit import Circuit
from dbsp.errors import CircuitError, ConfigError
from dbsp.expr.names import nearest

FORM = 'write "path/to/file.py:attribute", "package.module:attribute" or "path/to/file.sql"'


def load_circuit(spec: str, relative_to: Path | None = None) -> Circuit:
    """Load the circuit that `spec` names; a relative file is looked up from `relative_to`, else from the working directory.

    **Shape** The attribute is a `Circuit`, or a function without arguments that returns one.

    **Errors** `ConfigError` if the file, module or attribute does not exist or is no circuit. `ConfigError` with the line if the
    file's code raises; a `CircuitError` of that code passes as it is.
    """
    if spec.endswith(".sql"):
        from dbsp.sql.statements import circuit_of_file  # noqa: PLC0415 (it makes circuits, which this loads)

        return circuit_of_file(((relative_to or Path()) / spec).resolve())
    place, separator, attribute = spec.rpartition(":")
    if not separator or not place or not attribute:
        raise ConfigError(f"not the name of a circuit: circuit={spec!r}", FORM)
    is_file = place.endswith(".py") or "/" in place
    module = _from_file((relative_to or Path()) / place) if is_file else _from_name(place)
    if not hasattr(module, attribute):
        known = [name for name, value in vars(module).items() if isinstance(value, Circuit)]
        raise ConfigError(f"no such circuit: file={module.__file__} attribute={attribute}", nearest(attribute, known))
    found = getattr(module, attribute)
    if callable(found) and not isinstance(found, Circuit):
        found = _run(found, f"{place}:{attribute}")
    if not isinstance(found, Circuit):
        hint = 'make it one with dbsp.circuit("name", {"view": stream})'
        raise ConfigError(f"not a circuit: circuit={spec} type={type(found).__name__}", hint)
    return found


def _from_file(path: Path) -> ModuleType:
    """Run a file as a module, with its folder on the import path, as if it had been started there."""
    path = path.resolve()
    if not path.is_file():
        raise ConfigError(f"the circuit's file does not exist: file={path}", FORM)
    name = f"dbsp_user_{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path):
        return known
    if path.suffix not in SOURCE_SUFFIXES:
        raise ConfigError(f"not a Python file: file={path}", FORM)
    loader = _FromSource(name, str(path))
    spec = ModuleSpec(name, loader, origin=str(path))
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    sys.modules[name] = module
    try:
        _run(lambda: loader.exec_module(module), str(path))
    except (ConfigError, CircuitError):
        sys.modules.pop(name, None)
        raise
    return module


class _FromSource(SourceFileLoader):
    """Loads a module from its source text, never from Python's cache, which misses changes of equal size within a second."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the present text of the file."""
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _from_name(name: str) -> ModuleType:
    """Import a module by name."""
    try:
        missing = importlib.util.find_spec(name) is None
    except (ModuleNotFoundError, ValueError):
        missing = True
    if missing:
        raise ConfigError(
            f"the circuit's module cannot be found: module={name}", f"install it or set PYTHONPATH; or {FORM}"
        )
    return _run(lambda: importlib.import_module(name), name)  # type: ignore[no-any-return]


def _run(action: Callable[[], Any], where: str) -> Any:
    """Run user code; turn each error into a `ConfigError` with the user's line, except a `CircuitError`, which passes."""
    try:
        return action()
    except CircuitError:
        raise
    except SyntaxError as error:
        raise ConfigError(
            f"syntax error in the circuit's file: {error.msg} at={error.filename}:{error.lineno}"
        ) from error
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
        frames = [frame for frame in frames if "importlib" not in frame.filename] or frames
        line = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else where
        raise ConfigError(f"the circuit's code raised {type(error).__name__}: {error} at={line}") from error
