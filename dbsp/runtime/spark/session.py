"""Start Spark with the settings that steps need, and stop it without leaving processes or files.

A step is one small job, so most settings lower the cost of a job:

- Unix domain sockets to the Python workers (a job with one exchange falls from 137 to 40-65 ms);
- no UI, no console progress, and few finished jobs kept in memory.

The other settings keep steps correct:

- no speculation, and no reduce locality: the layout alone places a task;
- retries of failed tasks also in `local[N]`;
- the driver's own interpreter in every worker.

Left out: SQL sessions (only RDDs are used) and anything about steps (`dbsp.runtime.spark.runtime`).
Source: docs/concepts/steps.md; the figures are those of PySpark 4.3.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from dbsp.errors import ConfigError, UnavailableError
from dbsp.processes import lives, own_name
from dbsp.runtime.spark import daemon
from dbsp.runtime.spark.class_archive import archive_file, using
from dbsp.runtime.spark.java import require_java
from dbsp.runtime.spark.timeouts import check_timeouts, timeouts

TASK_FAILURES_MAX = 4
_LOG_TAIL_BYTES = 2000
_STOP_TIMEOUT_S = 10
_JVM_DIR = "dbsp-jvm-"
_SOCKET_CHARS_MAX = 107
"""Longest path of a Unix domain socket on Linux."""
_IN_JVM_DIR = 8 + len("/.00000000-0000-0000-0000-000000000000.sock")
"""Characters of a socket's path after the prefix of its folder: the random end of the folder's name, and Spark's socket."""

_CONF = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": daemon.__name__,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "400",
    "spark.speculation": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "1h",
    "spark.cleaner.periodicGC.interval": "1min",
    "spark.task.maxFailures": str(TASK_FAILURES_MAX),
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "1g",
}
_NAMED_IN_JOBS = ("PythonRDD", "PythonUtils", "SimplePythonFunction", "PairwiseRDD", "PythonPartitioner")
"""Classes that PySpark calls by short names in every job. Without imports the JVM searches all its jars at each call."""
_COMPILER = "-XX:TieredStopAtLevel=1"
"""JVM option: use the first compiler only. The JVM only schedules tasks and moves bytes, so the second does not pay."""
_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.shuffle.compress": "false",
}
_AUTHENTICATED = {"spark.authenticate": "true"}
"""A client of Spark's ports must know a secret, which Spark makes at each start and passes on no command line."""
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The settings that Spark is started with.

    - `conf`: overrides every setting made here.
    - `work_dir`: each process makes a folder in it for Spark's scratch files and log. The folder stays until another process
      starts there. Without `work_dir` the process makes a temporary folder and removes it.
    - `environment`: environment variables of the Python workers.
    - `preloads`: modules that the Python workers start with (`dbsp.runtime.spark.daemon`).
    - `worker_silence_s`: a job in which no task finishes for so long is cancelled. The limit must be below the time after which
      Spark gives up the executor and runs its tasks again (`dbsp.runtime.spark.timeouts`).
    - `parcel_file_bytes_min`: if all workers share this host, a parcel of at least so many bytes is passed as a file in
      `work_dir`. Below that size a file costs more than it saves.
    - `executors_wait_s`: how long to wait for an executor on each host of the layout.
    """

    master: str = "local[2]"
    app_name: str = "dbsp"
    conf: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    preloads: Sequence[str] = ()
    work_dir: Path | None = None
    worker_silence_s: float = 120.0
    parcel_file_bytes_min: int = 1 << 20
    executors_wait_s: float = 60.0

    def __post_init__(self) -> None:
        """Check the time limits. **Errors** `ConfigError` for a limit under which jobs could not end properly."""
        if self.worker_silence_s <= 0:
            raise ConfigError(f"worker_silence_s must be positive: worker_silence_s={self.worker_silence_s}")
        check_timeouts(self.worker_silence_s, self.conf)


def with_retries(master: str) -> str:
    """Return the master with retries of failed tasks for a local one, since other masters retry anyway.

    >>> [with_retries(m) for m in ("local", "local[2]", "local[*]", "local[2,1]", "spark://host:7077")]
    ['local[1,4]', 'local[2,4]', 'local[*,4]', 'local[2,1]', 'spark://host:7077']
    """
    if master == "local":
        return f"local[1,{TASK_FAILURES_MAX}]"
    return re.sub(r"^local\[([^,\]]+)\]$", rf"local[\1,{TASK_FAILURES_MAX}]", master)


def is_local(master: str) -> bool:
    """Return whether everything runs on this machine (`local[...]`, `local-cluster[...]`)."""
    return master.startswith("local")


def makes_secrets(master: str) -> bool:
    """Return whether Spark makes its own secret; a cluster's secret is in the settings of its daemons.

    >>> [makes_secrets(m) for m in ("local", "local[*,4]", "local-cluster[2,1,1024]", "spark://host:7077")]
    [True, True, False, False]
    """
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def configuration(settings: SparkSettings, work_dir: Path, jvm_dir: Path, java_option: str = "") -> dict[str, str]:
    """Return all settings for Spark; the user's override the others. `jvm_dir` is for the JVM's temporary files."""
    log4j = work_dir / "log4j2.properties"
    java = (
        f'-Dlog4j2.configurationFile={log4j.as_uri()} {_COMPILER} "-Djava.io.tmpdir={jvm_dir}" {java_option}'.rstrip()
    )
    conf = {
        "spark.app.name": settings.app_name,
        "spark.master": with_retries(settings.master),
        "spark.local.dir": str(work_dir),
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": f"{_COMPILER} {java_option}".rstrip(),
        **_CONF,
        **timeouts(settings.worker_silence_s),
        **(_LOOPBACK if is_local(settings.master) else {}),
        **(_AUTHENTICATED if makes_secrets(settings.master) else {}),
    }
    environment = {
        daemon.PRELOADS: ",".join(settings.preloads),
        **_worker_environment(is_local(settings.master)),
        **settings.environment,
    }
    conf.update({f"spark.executorEnv.{name}": value for name, value in environment.items()})
    conf.update(settings.conf)
    return conf


def _worker_environment(local: bool) -> dict[str, str]:
    """Return the environment that workers share with the driver: the kernel cache and, on one machine, the module path."""
    found = {name: os.environ[name] for name in ("NUMBA_CACHE_DIR",) if name in os.environ}
    if local:
        found["PYTHONPATH"] = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)
    return found


@dataclass(slots=True)
class SparkHandle:
    """A running Spark: its context, its JVM process and its folders.

    `turn` is held by a job whose tasks wait for one another: only one such job may hold cores of the context.
    """

    context: SparkContext
    process: subprocess.Popen[bytes]
    work_dir: Path
    jvm_dir: Path
    temporary: bool
    turn: threading.Lock = field(default_factory=threading.Lock)

    def alive(self) -> bool:
        """Return whether the JVM process runs."""
        return self.process.poll() is None

    def stop(self) -> None:
        """Stop the context and its JVM, even a dead one, so that this process can start another."""
        gateway: Any = self.context._gateway
        if self.alive():
            with suppress(Py4JError, OSError):
                self.context.stop()
        _forget(self.context)
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        end_process(self.process)
        shutil.rmtree(self.jvm_dir, ignore_errors=True)
        if self.temporary:
            shutil.rmtree(self.work_dir, ignore_errors=True)


def start(settings: SparkSettings, java_option: str | None = None) -> SparkHandle:
    """Start a JVM with a Spark context in it.

    `java_option` is passed to the JVM; None chooses the option for the archive of classes, if one exists.
    **Errors** `ConfigError` without Java, or if this process has a Spark context already; `UnavailableError`, with the end of
    Spark's log, if Spark does not start.
    """
    require_java()
    logging.root.addFilter(told_by_jobs)
    if SparkContext._active_spark_context is not None or SparkContext._gateway is not None:
        raise ConfigError("a Spark context is running in this process", "stop it first, or hand it to SparkRuntime")
    work_dir, jvm_dir = _fresh(settings.work_dir), _for_jvm()
    (work_dir / "log4j2.properties").write_text(_LOG4J)
    option = using(archive_file()) if java_option is None else java_option
    conf = SparkConf(loadDefaults=False).setAll(list(configuration(settings, work_dir, jvm_dir, option).items()))
    log = work_dir / "spark.log"
    with _launch_environment(settings), log.open("ab") as sink:
        try:
            gateway = launch_gateway(conf, {"stdout": sink, "stderr": subprocess.STDOUT})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise UnavailableError(f"Spark did not start: log={log} tail={_tail(log)}") from error
        try:
            context = _context(conf, gateway)
        except Exception as error:
            _forget(None)
            end_process(gateway.proc)
            raise UnavailableError(
                f"Spark did not start: master={settings.master} log={log} tail={_tail(log)}"
            ) from error
    temporary = settings.work_dir is None
    return SparkHandle(context=context, process=gateway.proc, work_dir=work_dir, jvm_dir=jvm_dir, temporary=temporary)


def _context(conf: SparkConf, gateway: Any) -> SparkContext:
    """Create the context and look up the JVM classes that every job names, so that jobs find them in a cache.

    PySpark's warning about the version of pandas is suppressed, because nothing here uses pandas.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*pandas", FutureWarning)
        context = SparkContext(conf=conf, gateway=gateway)
        context.setLogLevel("ERROR")
    server: Any = context._accumulatorServer
    server.handle_error = _lost
    jvm: Any = context._jvm
    jvm.JavaSerializer = jvm.org.apache.spark.serializer.JavaSerializer
    for name in _NAMED_IN_JOBS:
        setattr(jvm, name, getattr(jvm, name))
    return context


def _lost(*_: Any) -> None:
    """Ignore an error of PySpark's accumulator server, which would print a traceback when the JVM dies; jobs report that."""


def told_by_jobs(record: logging.LogRecord) -> bool:
    """Return False for py4j's traceback of a broken connection, because the failed job reports it; True for other records."""
    return record.msg != "Exception while sending command." or Path(record.pathname).parent.name != "py4j"


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End the JVM: close its standard input and terminate it; kill it if it does not exit within `_STOP_TIMEOUT_S`."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _forget(context: SparkContext | None) -> None:
    """Clear the gateway in PySpark's class attributes, so that a new start does not find the old one."""
    if context is not None and getattr(context, "_accumulatorServer", None) is not None:
        context._accumulatorServer.shutdown()
        context._accumulatorServer = None  # type: ignore[assignment]
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None


def _fresh(work_dir: Path | None) -> Path:
    """Make an empty folder of this process in `work_dir` for Spark; remove the folders of processes that have ended.

    A folder of a live process stays: that process is a replaced coordinator, or one that replaces this one.
    """
    if work_dir is None:
        return Path(tempfile.mkdtemp(prefix="dbsp-spark-"))
    own = work_dir / own_name()
    for left in work_dir.iterdir() if work_dir.is_dir() else ():
        if left == own or not lives(left.name):
            shutil.rmtree(left, ignore_errors=True)
    own.mkdir(parents=True)
    return own.resolve()


def _for_jvm() -> Path:
    """Make a folder for the JVM's unpacked files and its sockets; remove those of processes that have ended.

    If a socket's path in the system's temporary folder would be too long, the folder is made in `/tmp`, the JVM's default.
    """
    prefix, home = f"{_JVM_DIR}{own_name()}-", Path(tempfile.gettempdir())
    if len(str(home / prefix)) + _IN_JVM_DIR > _SOCKET_CHARS_MAX:
        home = Path("/tmp")  # noqa: S108 (with a name that mkdtemp makes)
    for left in home.glob(f"{_JVM_DIR}*"):
        if not lives(left.name.removeprefix(_JVM_DIR).partition("-")[0]):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=home))


@contextmanager
def _launch_environment(settings: SparkSettings) -> Iterator[None]:
    """Set the environment variables that Spark's launcher and PySpark read while they start; restore them afterwards.

    Workers use the driver's own interpreter. Only with a remote master may PYSPARK_PYTHON name another one.
    """
    package = str(Path(pyspark.__file__).parent)
    wanted: dict[str, Any] = {
        "SPARK_HOME": package,
        "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
        "PYSPARK_PIN_THREAD": "true",
    }
    if is_local(settings.master):
        wanted |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": None}
    else:
        wanted |= {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    before = {name: os.environ.get(name) for name in wanted}
    _put(wanted)
    try:
        yield
    finally:
        _put(before)


def _put(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _tail(log: Path) -> str:
    """Return the end of Spark's log on one line."""
    data = log.read_bytes()[-_LOG_TAIL_BYTES:] if log.exists() else b""
    return " | ".join(line for line in data.decode(errors="replace").splitlines() if line.strip())
