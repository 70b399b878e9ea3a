"""Make the archive of classes that Spark's JVM starts with: `python -m dbsp.runtime.spark.prepare`.

The archive is made once for each Java and each Spark; an existing one is kept. Making an archive takes some ten seconds. The
program starts a Spark that records the classes it loads, runs jobs like those of steps, and writes the archive at exit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from dbsp.errors import ConfigError, DbspError, UnavailableError
from dbsp.runtime.spark.class_archive import archive_file, forget_unused, making
from dbsp.runtime.spark.session import SparkHandle, SparkSettings, start

WRITES_S = 60.0
"""Seconds that the JVM may take to write the archive."""
_CONF = {"spark.python.daemon.module": "pyspark.daemon"}
"""Use PySpark's own daemon: these jobs need no kernels, which may not be compiled yet."""
WITHOUT = "Spark starts without one, too"


def prepare() -> Path:
    """Return the path of the archive; make the archive if it is absent.

    **Errors** `ConfigError` without Java, or if the cache folder cannot be written; `UnavailableError` if Spark does not start,
    or if its JVM writes no archive.
    """
    archive = archive_file()
    if archive.exists():
        return archive
    # The archive is written under another name and renamed: a Spark that starts meanwhile must not read half of it.
    beside = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        forget_unused(archive.parent)
        _write(beside)
        beside.rename(archive)
    except OSError as error:
        hint = "make room there, or name another folder in NUMBA_CACHE_DIR"
        raise ConfigError(f"the archive of classes cannot be written: file={archive} error={error}", hint) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return archive


def _write(archive: Path) -> None:
    """Start a Spark that records its classes, run jobs on it, and let it write the archive at exit."""
    handle = start(SparkSettings(conf=_CONF), java_option=making(archive))
    try:
        _work(handle.context)
        _end(handle)
    finally:
        handle.stop()
    if not archive.exists():
        raise UnavailableError(f"Java has written no archive of classes: file={archive}", WITHOUT)


def _work(context: SparkContext) -> None:
    """Run a job that loads the classes of steps: a broadcast, two stages with a shuffle, and collected rows."""
    added = context.broadcast(1)
    pairs: Any = context.parallelize(range(4), 2).map(lambda n: (n % 2, n + added.value))
    pairs.partitionBy(2).mapPartitionsWithIndex(lambda _, rows: iter(list(rows))).collect()


def _end(handle: SparkHandle) -> None:
    """Wait until the JVM exits by itself, since it writes the archive then; a killed JVM may leave half an archive.

    **Errors** `UnavailableError` if the JVM does not exit within `WRITES_S` seconds, or exits with an error code.
    """
    handle.context.stop()
    if handle.process.stdin is not None:
        handle.process.stdin.close()
    try:
        code = handle.process.wait(WRITES_S)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"Java did not end in time: seconds={WRITES_S:g}", WITHOUT) from None
    if code:
        raise UnavailableError(f"Java failed when it wrote its archive of classes: exit_code={code}", WITHOUT)


def main() -> None:
    """Make the archive and print its path and the seconds taken; exit with 1 on an error."""
    started = time.perf_counter()
    try:
        archive = prepare()
    except DbspError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    sys.stdout.write(f"Spark is prepared: seconds={time.perf_counter() - started:.1f} archive={archive}\n")


if __name__ == "__main__":
    main()
