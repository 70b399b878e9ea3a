"""Spark is started the way steps need it, and nothing of it is left."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import uuid
from pathlib import Path

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, JVMView

from dbsp.errors import ConfigError
from dbsp.layout import initial
from dbsp.processes import find_process, own_name
from dbsp.runtime.spark import daemon, session
from dbsp.runtime.spark.parcel_files import ParcelFiles
from dbsp.runtime.spark.session import SparkHandle, SparkSettings, configuration, start
from dbsp.runtime.spark.step_job import StepTask, exchanged


def test_the_users_settings_come_last(tmp_path: Path) -> None:
    settings = SparkSettings(conf={"spark.driver.memory": "5g"}, environment={"MINE": "1"})
    conf = configuration(settings, tmp_path, tmp_path)
    assert conf["spark.driver.memory"] == "5g"
    assert conf["spark.executorEnv.MINE"] == "1"
    assert conf["spark.executorEnv.DBSP_PRELOADS"] == ""
    assert conf["spark.python.unix.domain.socket.enabled"] == "true"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.authenticate"] == "true"
    assert all("TieredStopAtLevel=1" in conf[f"spark.{side}.extraJavaOptions"] for side in ("driver", "executor"))


def test_a_remote_master_is_not_bound_to_loopback(tmp_path: Path) -> None:
    conf = configuration(SparkSettings(master="spark://far:7077"), tmp_path, tmp_path)
    assert "spark.driver.bindAddress" not in conf
    assert "spark.authenticate" not in conf, "its daemons would have to know the secret"


def test_a_silence_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="worker_silence_s"):
        SparkSettings(worker_silence_s=0)


@pytest.mark.parametrize("silence_s", [0.5, 5.0, 120.0, 3600.0])
def test_a_silence_is_noticed_before_spark_runs_a_task_again(tmp_path: Path, silence_s: float) -> None:
    """Of every time-out after which Spark gives an executor up, also where the settings lower one."""
    conf = configuration(SparkSettings(worker_silence_s=silence_s), tmp_path, tmp_path)
    for name in ("spark.network.timeout", "spark.worker.timeout"):
        assert float(conf[name].removesuffix("s")) > max(silence_s, 10), name
    assert "spark.storage.blockManagerHeartbeatTimeoutMs" not in conf, "by default it is that of the network"
    for name, late in (
        ("spark.network.timeout", f"{int(silence_s)}"),
        ("spark.worker.timeout", f"{int(silence_s)}s"),
        ("spark.storage.blockManagerHeartbeatTimeoutMs", f"{int(silence_s * 1000)}"),
    ):
        with pytest.raises(ConfigError, match=f"before its silence is noticed: {name}="):
            SparkSettings(worker_silence_s=silence_s, conf={name: late})
    SparkSettings(worker_silence_s=silence_s, conf={"spark.network.timeout": f"{int(silence_s) + 1}s"})
    with pytest.raises(ConfigError, match="not a time"):
        SparkSettings(conf={"spark.network.timeout": "soon"})


@pytest.mark.spark
def test_workers_run_the_drivers_interpreter(spark: SparkHandle) -> None:
    def look(_: object) -> list[tuple[str, str, str]]:
        names = os.environ
        return [(sys.executable, names["PYTHONHASHSEED"], names.get("PYTHON_UNIX_DOMAIN_ENABLED", "false"))]

    seen = spark.context.parallelize(range(2), 2).mapPartitions(look).collect()
    assert seen == [(sys.executable, "0", "True")] * 2


@pytest.mark.spark
def test_workers_are_forks_of_a_process_that_has_loaded_what_they_need(spark: SparkHandle) -> None:
    def look(_: object) -> list[tuple[int, str]]:
        return [(os.getpid(), Path(f"/proc/{os.getppid()}/cmdline").read_text())]

    seen = dict(spark.context.parallelize(range(2), 2).mapPartitions(look).collect())
    assert [daemon.__name__ in command for command in seen.values()] == [True] * len(seen)


def test_the_daemon_loads_modules_and_kernels_and_starts_no_thread() -> None:
    """What Python's threads hold would be held for ever in a fork."""
    script = """if True:
        import sys, threading
        from dbsp.runtime.spark import daemon
        early = [name for name in (*daemon.ALWAYS, "dbsp.storage", "confluent_kafka") if name in sys.modules]
        daemon.load()
        from dbsp.runtime.spark.control_job import load_kernels
        missing = [name for name in (*daemon.ALWAYS, "dbsp.storage") if name not in sys.modules]
        print(early, missing, "confluent_kafka" in sys.modules, threading.active_count(), load_kernels.cache_info().currsize)
    """
    environment = {**os.environ, daemon.PRELOADS: "dbsp.coordinator.worker_resources"}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.strip() == "[] [] False 1 1"


@pytest.mark.spark
def test_what_the_jvm_unpacks_and_its_sockets_are_in_a_folder_that_is_found_again(spark: SparkHandle) -> None:
    """A JVM that is killed leaves them; the next start on this host takes away those of processes that are gone."""
    assert spark.context.parallelize(range(100), 2).map(lambda n: (n % 2, n)).partitionBy(2).count() == 100
    assert list(spark.jvm_dir.glob("liblz4*.so"))
    assert list(spark.jvm_dir.glob(".*.sock"))
    gone, lives = (spark.jvm_dir.with_name(f"dbsp-jvm-{name}-x") for name in ("0.0", own_name()))
    for folder in (gone, lives):
        folder.mkdir()
    made = session._for_jvm()
    assert (gone.exists(), lives.exists(), spark.jvm_dir.exists()) == (False, True, True)
    for folder in (made, lives):
        folder.rmdir()


def test_sparks_folder_of_a_process_that_lives_is_left_alone(tmp_path: Path) -> None:
    """A coordinator that is replaced goes on for a moment, or is stopped and wakes up; its jobs, and those of who replaced it."""
    with subprocess.Popen(["sleep", "60"]) as other:
        found = find_process(other.pid)
        assert found is not None
        for name in (found.name, "0.0", own_name()):
            (tmp_path / name).mkdir()
            (tmp_path / name / "file").touch()
        mine = session._fresh(tmp_path)
        assert {folder.name: len(list(folder.iterdir())) for folder in tmp_path.iterdir()} == {
            found.name: 1,
            mine.name: 0,
        }
        other.kill()
    assert mine.name == own_name()
    session._fresh(tmp_path)
    assert [folder.name for folder in tmp_path.iterdir()] == [own_name()]


@pytest.mark.spark
def test_spark_writes_to_its_own_log_and_no_warnings(spark: SparkHandle, capfd: pytest.CaptureFixture[str]) -> None:
    assert spark.context.parallelize(range(2), 2).count() == 2
    assert capfd.readouterr() == ("", "")
    log = (spark.work_dir / "spark.log").read_text()
    assert " WARN " not in log


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_connection_that_a_killed_jvm_resets_is_no_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take_and_reset() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 10)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        jvm = threading.Thread(target=take_and_reset, daemon=True)
        jvm.start()
        client = JavaGateway(gateway_parameters=GatewayParameters(port=server.getsockname()[1]))._gateway_client
        assert client.send_command("c\n") == "x"
        jvm.join()
    assert not caplog.records


def test_a_job_has_the_jvm_look_for_no_class(
    spark: SparkHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would look through all jars, package by package, for each, in every job."""
    asked: list[str] = []
    real = JVMView.__getattr__

    def noted(view: JVMView, name: str) -> object:
        asked.append(name)
        return real(view, name)

    layout = spark.context.broadcast(initial(2))
    monkeypatch.setattr(JVMView, "__getattr__", noted)
    pairs = spark.context.parallelize([], 2).mapPartitionsWithIndex(lambda index, _: [(index, b"x")])
    ground = len(asked)
    step = StepTask(work=None, layout=layout, parcels=ParcelFiles.make(tmp_path, 1))  # type: ignore[arg-type]
    assert exchanged(pairs, step, 2).glom().collect() == [[(0, b"x")], [(1, b"x")]]
    assert asked[ground:] == []
    assert spark.context._jvm is not None
    assert spark.context._jvm.SparkConf is not None
    assert asked[ground:] == ["SparkConf"]


@pytest.mark.spark
@pytest.mark.parametrize("beside", [True, False])
def test_small_records_are_not_worth_a_kryo(spark: SparkHandle, tmp_path: Path, beside: bool) -> None:
    records = [(0, b""), (1, bytes(range(256)) * 20), (1, b"xy")]
    parcels = ParcelFiles.make(tmp_path, 1 << 20) if beside else None
    step = StepTask(work=None, layout=spark.context.broadcast(initial(2)), parcels=parcels)  # type: ignore[arg-type]
    sent = exchanged(spark.context.parallelize([records], 1).flatMap(list), step, 2)
    assert sent.glom().collect() == [records[:1], records[1:]]
    shuffle = sent._jrdd.rdd().dependencies().head().rdd().dependencies().head()
    assert shuffle.serializer().getClass().getSimpleName() == ("JavaSerializer" if beside else "KryoSerializer")


@pytest.mark.spark
def test_a_second_context_is_refused(spark: SparkHandle) -> None:
    with pytest.raises(ConfigError, match="a Spark context is running"):
        start(SparkSettings())


def test_sockets_have_room_in_a_path_however_long_the_temporary_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = f"/.{uuid.uuid4()}.sock"
    for length in range(20, 120, 3):
        home = (tmp_path / ("x" * length)).resolve()
        home.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(home))
        made = session._for_jvm()
        made.rmdir()
        assert len(f"{made}{socket}") <= 107
        fits = len(f"{home}/{made.name}{socket}") <= 107
        assert made.parent == (home if fits else Path("/tmp"))
