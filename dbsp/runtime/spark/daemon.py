"""Run PySpark's daemon with everything loaded that a task needs: Python workers are forks of this process.

PySpark's own daemon loads nothing. Each worker, also the replacement of a killed one, would then load modules and compiled
kernels itself, which takes some two seconds of processor time. This daemon loads them once, and its forks share the memory.

Spark starts this module by its name (`spark.python.daemon.module`). So dbsp must be installed where executors run, which
`dbsp.runtime.spark.shared` requires anyway.

- Loaded modules must not start Python threads: a fork has no copy of these threads.
- Libraries that start threads of their own when loaded (OpenBLAS, jemalloc) restart them in a fork.
- This process must not open a file or a database.
- This process must not write to standard output, which Spark reads.

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
    """Load the modules and kernels that tasks need; the scalar makes pyarrow look for pandas now, not in each fork."""
    for name in (*ALWAYS, *filter(None, os.environ.get(PRELOADS, "").split(","))):
        importlib.import_module(name)
    pa.scalar(0)
    from dbsp.runtime.spark.control_job import load_kernels  # noqa: PLC0415 - the driver, which names this module, has no need of it

    load_kernels()


def main() -> None:
    """Load, then run PySpark's daemon."""
    from pyspark.daemon import manager  # noqa: PLC0415 - as above

    load()
    manager()


if __name__ == "__main__":
    main()
