"""A standalone Spark master and workers on loopback addresses, out of the pip package alone.

Workers may have disks of their own: each then sees another folder in the place of one and the same, by a mount that is its alone.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pyspark

from tests.kafka.broker import QUICK
from tests.spark.networks import Networks
from tests.spark.waiting import until

NOTHING: Mapping[str, str] = MappingProxyType({})
SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")


@dataclass(frozen=True, slots=True)
class Cluster:
    master: str
    workers: dict[str, subprocess.Popen[bytes]]
    begin: Callable[[str], None]
    """Start the Worker of a host, also one that was killed; returns when it is registered."""
    command: Callable[[str], list[str]]
    """The command that starts the Worker of a host, for others to run."""

    def executors(self, host: str) -> list[int]:
        """The pids of the executor JVMs that a Worker has started."""
        pid = self.workers[host].pid
        children = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for file in children for child in file.read_text().split()]


@contextmanager
def standalone(
    folder: Path,
    hosts: Sequence[str],
    *,
    apart: Path | None = None,
    environment: Mapping[str, str] = NOTHING,
    own: Networks | None = None,
    cores: int = 1,
) -> Iterator[Cluster]:
    """Some `cores`, and half a GiB for each of them, on each host; all processes are gone afterwards.

    Where hosts are `apart`, each sees its own `folder/disk-<host>` in the place of this folder, and nobody else does.
    With networks of their `own` the hosts are those of these networks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    here = "127.0.0.1" if own is None else own.address
    with socket.socket() as probe:
        probe.bind((here, 0))
        port = probe.getsockname()[1]
    with ExitStack() as stack:
        address = ["--host", here, "--port", str(port), "--webui-port", "0"]
        _daemon(stack, folder, "master", [SPARK_CLASS, "org.apache.spark.deploy.master.Master", *address])
        until(lambda: _listens(here, port), "the master listens")
        workers: dict[str, subprocess.Popen[bytes]] = {}

        def command(host: str) -> list[str]:
            room = ["--cores", str(cores), "--memory", f"{600 * cores}m"]
            options = ["--host", host, *room, "--webui-port", "0"]
            options += ["--work-dir", str(folder / host), f"spark://{here}:{port}"]
            kind = "org.apache.spark.deploy.worker.Worker"
            words = [SPARK_CLASS, kind, *options]
            if apart is not None:
                words = seeing(folder / f"disk-{host}", apart, words)
            return [*([] if own is None else own.inside(host)), *words]

        def begin(host: str) -> None:
            workers[host] = _daemon(stack, folder, host, command(host), environment)

        def registered(host: str) -> None:
            log = folder / f"{host}.log"
            until(lambda: "Successfully registered with master" in log.read_text(), f"{host} is registered")

        def again(host: str) -> None:
            begin(host)
            registered(host)

        for host in hosts:
            begin(host)
        for host in hosts:
            registered(host)
        yield Cluster(master=f"spark://{here}:{port}", workers=workers, begin=again, command=command)


def _daemon(
    stack: ExitStack,
    folder: Path,
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str] = NOTHING,
) -> subprocess.Popen[bytes]:
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    own = {
        "SPARK_LOCAL_DIRS": str(folder / f"{name}-local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join(QUICK),
    }
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **own, **environment})
    stack.callback(process.wait, 20)
    stack.callback(process.terminate)
    return process


def seeing(disk: Path, place: Path, command: Sequence[str]) -> list[str]:
    """The command, in whose sight the disk lies in that place; who is not root becomes it in a namespace of users."""
    for folder in (disk, place):
        folder.mkdir(parents=True, exist_ok=True)
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    mount = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    return ["unshare", "--mount", *rights, "sh", "-c", mount, "sh", str(disk), str(place), *command]


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0
