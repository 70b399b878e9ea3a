"""A real Kafka broker for the tests: jars through Ivy (PySpark brings it), one KRaft process, killed with its parent.

`python -m tests.kafka.broker` fetches the jars ahead, as `make test` does while it compiles and checks.
"""

from __future__ import annotations

import atexit
import base64
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pyspark

VERSION = "4.1.0"
PR_SET_PDEATHSIG = 1
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A broker that lives for minutes and holds a few rows: starting it is most of what it costs."""
CACHE = Path(os.environ.get("DBSP_CACHE", Path.home() / ".cache" / "dbsp"))


def jars() -> Path:
    """The folder with Kafka's jars, fetched once."""
    folder = CACHE / f"kafka-{VERSION}"
    if (folder / f"kafka_2.13-{VERSION}.jar").exists():
        return folder
    fetched = CACHE / f"kafka-{VERSION}.{os.getpid()}"
    ivy = Path(pyspark.__file__).parent / "jars" / "*"
    command = ["java", "-cp", str(ivy), "org.apache.ivy.Main", "-cache", str(CACHE / "ivy"), "-confs", "default"]
    command += ["-dependency", "org.apache.kafka", "kafka_2.13", VERSION, "-types", "jar", "bundle"]
    command += ["-retrieve", f"{fetched}/[artifact]-[revision].[ext]"]
    subprocess.run(command, check=True, capture_output=True, timeout=280)
    if not folder.exists():
        fetched.rename(folder)
    return folder


def features() -> Path:
    """A file with the features that a new cluster of this version has, written once by Kafka's command to format a folder."""
    made = CACHE / f"kafka-{VERSION}.features" / "bootstrap.checkpoint"
    if made.exists():
        return made
    with tempfile.TemporaryDirectory(prefix="features.", dir=jars().parent) as name:
        properties = Path(name) / "server.properties"
        properties.write_text(
            f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\nlog.dirs={name}/data\n"
            "listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\ncontroller.listener.names=CONTROLLER\n"
        )
        command = ["java", *QUICK, "-cp", f"{jars()}/*", "kafka.tools.StorageTool", "format"]
        command += ["-t", _uuid(), "-c", str(properties)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        made.parent.mkdir(exist_ok=True)
        (Path(name) / "data" / made.name).replace(made)
    return made


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _uuid() -> str:
    """A number as Kafka writes it, without the signs that its command line would take for an option."""
    return base64.b64encode(uuid.uuid4().bytes, b"ab").decode().rstrip("=")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Broker:
    """Start, stop, kill and restart one broker; its data stays in `folder` until the end.

    One that `joins` another is a second broker of its cluster, under the number `node`; topics have `copies` by default.
    Clients reach it at `host`, an address of this machine. With a `port` it is one that another process has started there.
    With a folder `tls`, `tls_brokers` is a second address, only for clients whose certificate `ca.pem` of this folder signed;
    the broker's own key and certificate are in `broker.pem` there. It reads both when it starts.
    """

    def __init__(
        self, folder: Path | None = None, *, joins: Broker | None = None, node: int = 1, copies: int = 1,
        tls: Path | None = None, host: str = "127.0.0.1", port: int | None = None,
    ) -> None:  # fmt: skip
        self._joins, self._node, self._copies = joins, node, joins._copies if joins else copies
        self.cluster: str = joins.cluster if joins else _uuid()
        self._temporary = (
            None if folder else tempfile.TemporaryDirectory(prefix="dbsp-kafka-", ignore_cleanup_errors=True)
        )
        self.folder = folder or Path(self._temporary.name)  # type: ignore[union-attr]
        self.port, self._controller = port or free_port(), free_port()
        self.brokers = f"{host}:{self.port}"
        self._tls = tls
        self.tls_brokers = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = self.folder / "server.properties"

    def start(self, ends_with: int | None = None) -> Broker:
        """Start it; it ends with this process, or with the process `ends_with`."""
        if not self._properties.exists():
            self._format()
        java = [*self._java("-Xmx512m"), "kafka.Kafka", str(self._properties)]
        with (self.folder / "broker.log").open("ab") as log:
            if ends_with is None:
                self._process = subprocess.Popen(
                    java,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,  # noqa: PLW1509 - one prctl call
                )
                atexit.register(self.kill)
            else:
                watched = f'("$@" & tail --pid={ends_with} -f /dev/null; kill -9 $!) &'
                command = ["sh", "-c", watched, "sh", *java]
                subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, check=True)
        self.admin().list_topics(timeout=120)
        return self

    def admin(self) -> Any:
        return confluent_kafka.admin.AdminClient({"bootstrap.servers": self.brokers, "log_level": 2})

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=30)
            self._process = None
        atexit.unregister(self.kill)

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)  # type: ignore[union-attr]

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)  # type: ignore[union-attr]

    def close(self) -> None:
        self.kill()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _java(self, *options: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self._log4j()}"
        return ["java", *QUICK, *options, logging, "-cp", f"{jars()}/*"]

    def _log4j(self) -> Path:
        path = self.folder / "log4j2.properties"
        if not path.exists():
            path.write_text(
                "rootLogger.level=WARN\nrootLogger.appenderRefs=c\nrootLogger.appenderRef.c.ref=c\n"
                "appender.c.type=Console\nappender.c.name=c\nappender.c.layout.type=PatternLayout\n"
                "appender.c.layout.pattern=%d %p %c %m%n\n"
            )
        return path

    def _format(self) -> None:
        joins, controller = self._joins, (self._joins or self)._controller
        own = "" if joins else f",CONTROLLER://127.0.0.1:{controller}"
        tls = f",SSL://{self.tls_brokers}" if self._tls else ""
        self._properties.write_text(
            f"""process.roles={"broker" if joins else "broker,controller"}
node.id={self._node}
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://{self.brokers}{tls}{own}
advertised.listeners=PLAINTEXT://{self.brokers}{tls}
controller.listener.names=CONTROLLER
log.dirs={self.folder / "data"}
default.replication.factor={self._copies}
offsets.topic.replication.factor={self._copies}
offsets.topic.num.partitions=1
transaction.state.log.replication.factor={self._copies}
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""
            + (
                f"""listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT
ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location={self._tls / "broker.pem"}
ssl.truststore.type=PEM
ssl.truststore.location={self._tls / "ca.pem"}
"""
                if self._tls
                else ""
            )
        )
        # What Kafka's command to format a folder writes; the command itself would be a JVM more for each broker.
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        if not joins:
            shutil.copyfile(features(), data / features().name)
        (data / "meta.properties").write_text(
            f"version=1\ncluster.id={self.cluster}\nnode.id={self._node}\ndirectory.id={_uuid()}\n"
        )


if __name__ == "__main__":
    features()
