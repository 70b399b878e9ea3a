"""A standalone Spark master and workers on loopback addresses, out of the pip package alone."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.spark.waiting import until

SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")


@dataclass(frozen=True, slots=True)
class Cluster:
    master: str
    workers: dict[str, subprocess.Popen[bytes]]

    def executors(self, host: str) -> list[int]:
        """The pids of the executor JVMs that a Worker has started."""
        pid = self.workers[host].pid
        children = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for file in children for child in file.read_text().split()]


@contextmanager
def standalone(folder: Path, hosts: Sequence[str]) -> Iterator[Cluster]:
    """One core and half a GiB for each host; all processes are gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ExitStack() as stack:
        address = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        _daemon(stack, folder, "master", "org.apache.spark.deploy.master.Master", address)
        until(lambda: _listens(port), "the master listens")
        workers = {}
        for host in hosts:
            options = ["--host", host, "--cores", "1", "--memory", "600m", "--webui-port", "0"]
            options += ["--work-dir", str(folder / host), f"spark://127.0.0.1:{port}"]
            workers[host] = _daemon(stack, folder, host, "org.apache.spark.deploy.worker.Worker", options)
        for host in hosts:
            log = folder / f"{host}.log"
            until(lambda log=log: "Successfully registered with master" in log.read_text(), f"{host} is registered")
        yield Cluster(master=f"spark://127.0.0.1:{port}", workers=workers)


def _daemon(stack: ExitStack, folder: Path, name: str, kind: str, options: list[str]) -> subprocess.Popen[bytes]:
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(folder / f"{name}-local"), "SPARK_DAEMON_MEMORY": "256m"}
    process = subprocess.Popen([SPARK_CLASS, kind, *options], stdout=log, stderr=subprocess.STDOUT, env=environment)
    stack.callback(process.wait, 20)
    stack.callback(process.terminate)
    return process


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
