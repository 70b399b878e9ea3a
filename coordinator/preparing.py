"""Work done once after an installation, before the first start: compile kernels, and put Spark's classes into an archive.

Both run at the same time, as each takes one processor. Kernels are compiled now, so that no step waits for the
compiler. Without the archive Spark starts more slowly. If the archive cannot be made, this is reported once and not
tried again.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dbsp.coordinator.exits import say
from dbsp.coordinator.settings.config import Config
from dbsp.errors import ConfigError
from dbsp.zset.kernels.compile import are_compiled, compile_all

PATIENCE_S = 3.0
ARCHIVE_S_MAX = 120.0


def prepare(config: Config, patience_s: float = PATIENCE_S) -> None:
    """Do the preparations that are not done yet; print a line if they take longer than `patience_s`."""
    on_spark = config.pipeline.runtime != "local"
    new = [] if are_compiled() else ["compiling kernels"]
    new += ["preparing Spark"] if on_spark and _lacks_archive() else []
    words = f"{' and '.join(new)}, once after an installation; this takes up to a minute"
    busy = "loading kernels takes longer than usual: the machine is busy"
    _together(patience_s, words if new else busy, [compile_all, _archive] if on_spark else [compile_all])


def _together(patience_s: float, words: str, tasks: Sequence[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=task, name="dbsp-preparing", daemon=True) for task in tasks]
    until = time.monotonic() + patience_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        say(words)
    for thread in threads:
        thread.join()


def _lacks_archive() -> bool:
    """Return whether the archive of Spark's classes is to be made: Spark is installed, and no attempt was made yet."""
    if importlib.util.find_spec("pyspark") is None:
        return False
    with suppress(ConfigError):
        archive = archive_of_spark()
        return not (archive.exists() or refusal_of(archive).exists())
    return False


def _archive() -> None:
    """Make the archive of classes in a process of its own, unless it was tried before."""
    if _lacks_archive():  # the start reports the fault of Spark or Java
        _make(archive_of_spark())


def _make(archive: Path) -> None:
    command = [sys.executable, "-m", "dbsp.runtime.spark.prepare"]
    try:
        done = subprocess.run(  # noqa: S603 - our own command line
            command, capture_output=True, text=True, timeout=ARCHIVE_S_MAX, check=False, stdin=subprocess.DEVNULL
        )
        words = "" if done.returncode == 0 else done.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        words = str(error)
    if words:
        say(f"Spark starts without an archive of its classes, which takes a little longer: {words}")
        with suppress(OSError):
            refusal_of(archive).write_text(words)


def refusal_of(archive: Path) -> Path:
    """Return the file that says why an archive could not be made; delete it to have the archive tried again."""
    return archive.with_suffix(".refused")


def archive_of_spark() -> Path:
    """See `dbsp.runtime.spark.class_archive`."""
    from dbsp.runtime.spark.class_archive import archive_file  # noqa: PLC0415 - Spark is optional

    return archive_file()
