"""PySpark's daemon with all that a task needs loaded before: Python workers are forks of it, and begin where it is.

PySpark's own loads nothing, so that each worker, one that takes the place of a killed one too, would load modules and compiled
kernels for itself, some two seconds of a processor. Here that is done once, and the memory is shared.

Spark starts this module by its name (`spark.python.daemon.module`), for which dbsp must be installed where executors run, as
`dbsp.runtime.spark.shared` demands anyway. What is loaded here must not start threads of Python's: they would not be there in a
fork. Those that libraries start when they are loaded (OpenBLAS, jemalloc) are made anew by them. Nothing may be opened here,
no file, no database, and nothing may be written to standard output, which is Spark's.

Source: `pyspark.daemon`; docs/design/0034.
"""

from __future__ import annotations

import importlib
import os

import pyarrow as pa

PRELOADS = "DBSP_PRELOADS"
"""The variable that names further modules to load, with commas between them."""
ALWAYS = ("pyspark.worker", "dbsp.runtime.spark.step_job")


def load() -> None:
    """Load what tasks need; pyarrow looks for pandas at the first value that is made of one of Python's."""
    for name in (*ALWAYS, *filter(None, os.environ.get(PRELOADS, "").split(","))):
        importlib.import_module(name)
    pa.scalar(0)
    from dbsp.runtime.spark.control_job import load_kernels  # noqa: PLC0415 - the driver, which names this module, has no need of it

    load_kernels()


def main() -> None:
    """Load, then do as PySpark's daemon does."""
    from pyspark.daemon import manager  # noqa: PLC0415 - as above

    load()
    manager()


if __name__ == "__main__":
    main()
