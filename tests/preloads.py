"""What the server of `tests.forked` has loaded when it forks: all that a start of the service would load."""

from __future__ import annotations

import importlib

import pyarrow as pa
import pydantic.v1  # noqa: F401  (FastAPI looks for it when the first route is made)

import dbsp.coordinator.serve
import dbsp.surface  # noqa: F401
from dbsp.runtime.spark.control_job import load_kernels

try:
    importlib.import_module("dbsp.coordinator.commands.cli")
except ModuleNotFoundError:
    importlib.import_module("dbsp.coordinator.cli")  # its place in version 0.1.0

pa.scalar(0)  # Arrow imports pandas for its first value, which takes 0.25 s of each process that has not done it
load_kernels()
