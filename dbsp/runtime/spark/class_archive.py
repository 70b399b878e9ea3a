"""Find the archive of classes that Spark's JVM starts with: one file with the loaded form of the classes in its jars.

With the archive Spark starts in little more than half the time and uses half the processor time.
`dbsp.runtime.spark.prepare` makes the archive.

**Law** an archive changes only the start time: the JVM compares the archive with itself and its jars, and ignores another's
archive. The file name is a hash of the Java and the Spark that made the archive, so each pair has its own file.

Executors on other hosts get the same option. There the archive exists if the host has the same installation and has prepared it.
Without it a JVM takes 0.3 s longer; with it, 1.1 s less (docs/design/0034-a-start-of-spark.md).
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

import pyspark

from dbsp.runtime.spark.java import java_command
from dbsp.zset.kernels.kernel import code_folder

UNUSED_DAYS = 30
"""An archive (90 MB) that was not used for this many days is deleted when another one is made."""


def archive_file() -> Path:
    """Return the path of the archive for this Java and this Spark, in the folder of compiled kernels; it may not exist.

    **Errors** `ConfigError` without Java.
    """
    java = Path(java_command()).resolve()
    modules = java.parent.parent / "lib" / "modules"
    of = (java, modules if modules.exists() else java, Path(pyspark.__file__).parent / "jars")
    stats = [path.stat() for path in of]
    made_of = [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in zip(of, stats, strict=True)]
    name = hashlib.blake2b(repr((pyspark.__version__, made_of)).encode(), digest_size=8).hexdigest()
    return Path(code_folder()) / "jvm" / f"{name}.jsa"


def using(archive: Path) -> str:
    """Return the Java option that uses the archive, and mark the archive as used; empty if the archive does not exist."""
    if not archive.exists():
        return ""
    with suppress(OSError):  # the archive belongs to another user's installation
        os.utime(archive)
    return f'"-XX:SharedArchiveFile={archive}"'


def making(archive: Path) -> str:
    """Return the Java option that writes the archive when the JVM exits."""
    return f'"-XX:ArchiveClassesAtExit={archive}"'


def forget_unused(folder: Path) -> None:
    """Delete the archives in `folder` that were not used for `UNUSED_DAYS` days."""
    oldest = time.time() - UNUSED_DAYS * 86_400
    for archive in folder.glob("*.jsa"):
        with suppress(OSError):
            if archive.stat().st_mtime < oldest:
                archive.unlink()
