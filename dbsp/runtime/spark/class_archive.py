"""Which archive of classes Spark's JVM starts with: what it would load from its jars, as it has it in memory, in one file.

With it Spark is there in a little more than half the time, for half of the processor's. `dbsp.runtime.spark.prepare` makes it.

**Law** an archive changes nothing but the time: the JVM compares it with itself and with its jars, and leaves one of others
alone. A file is named by what it was made of, so each Java and each Spark has its own.

Left out: executors that are not the driver; they start once, and elsewhere.
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
"""An archive takes 90 MB; one that nobody has used for so long goes when another one is made."""


def archive_file() -> Path:
    """The archive of the Java and the Spark at hand, whether it is there or not, beside compiled kernels.

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
    """The option for Java with which it uses the archive; nothing where there is none. It counts as used."""
    if not archive.exists():
        return ""
    with suppress(OSError):  # that of an installation that others have made
        os.utime(archive)
    return f'"-XX:SharedArchiveFile={archive}"'


def making(archive: Path) -> str:
    """The option for Java with which it writes an archive when it ends."""
    return f'"-XX:ArchiveClassesAtExit={archive}"'


def forget_unused(folder: Path) -> None:
    """Delete archives that were not used for long."""
    oldest = time.time() - UNUSED_DAYS * 86_400
    for archive in folder.glob("*.jsa"):
        with suppress(OSError):
            if archive.stat().st_mtime < oldest:
                archive.unlink()
