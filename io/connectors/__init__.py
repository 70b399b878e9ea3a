"""Connector kinds, one file each; every module in this folder is imported, and registers the kinds that it defines."""

from __future__ import annotations

import importlib
import pkgutil

from dbsp.io.connectors.kind import Connector, InputKind, OutputKind, Residence
from dbsp.io.connectors.registry import INPUT_KINDS, KINDS, OUTPUT_KINDS, configured, options, types_of

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")

__all__ = [
    "INPUT_KINDS",
    "KINDS",
    "OUTPUT_KINDS",
    "Connector",
    "InputKind",
    "OutputKind",
    "Residence",
    "configured",
    "options",
    "types_of",
]
