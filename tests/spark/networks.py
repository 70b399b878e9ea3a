"""Hosts with networks of their own: each is a namespace with an address on a bridge, and a cable that can be cut.

For root on Linux with iproute2. A namespace lives as long as a process that holds it, which ends with the test's own process;
then its cable is gone, too. A bridge that a killed test left is deleted by the next one.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.spark.waiting import until

PR_SET_PDEATHSIG = 1


def missing() -> str:
    """Why there can be no such hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "namespaces of networks need root"
    if absent := [name for name in ("ip", "unshare", "nsenter") if shutil.which(name) is None]:
        return f"not installed: {', '.join(absent)}"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return (
        "" if tried.returncode == 0 else f"the kernel forbids namespaces of networks: {tried.stderr.decode().strip()}"
    )


@dataclass(frozen=True, slots=True)
class Networks:
    """The bridge's address, where everything but the hosts is, and the holders of the hosts' namespaces by address."""

    bridge: str
    address: str
    holders: dict[str, subprocess.Popen[bytes]]

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(self.holders)

    def inside(self, host: str) -> list[str]:
        """What to put before a command that runs on the host."""
        return ["nsenter", "--target", str(self.holders[host].pid), "--net", "--"]

    def cut(self, host: str) -> None:
        """Pull the host's cable: nothing arrives any more, in either direction, and nobody is told."""
        _ip("link", "set", self._cable(host), "down")

    def heal(self, host: str) -> None:
        """Put the cable back."""
        _ip("link", "set", self._cable(host), "up")

    def _cable(self, host: str) -> str:
        return f"{self.bridge}-{self.hosts.index(host)}"


@contextmanager
def networks(count: int) -> Iterator[Networks]:
    """So many hosts on one bridge."""
    number = os.getpid() % 250
    made = Networks(bridge=f"dbsp{number}", address=f"10.213.{number}.1", holders={})
    with ExitStack() as stack:
        if Path(f"/sys/class/net/{made.bridge}").exists():
            _ip("link", "del", made.bridge)
        _ip("link", "add", made.bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", made.bridge)
        _ip("addr", "add", f"{made.address}/24", "dev", made.bridge)
        _ip("link", "set", made.bridge, "up")
        for place in range(count):
            host = f"10.213.{number}.{place + 2}"
            made.holders[host] = holder = _holder(stack)
            _ip(
                "link",
                "add",
                f"{made.bridge}-{place}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                str(holder.pid),
            )
            _ip("link", "set", f"{made.bridge}-{place}", "master", made.bridge)
            _ip("link", "set", f"{made.bridge}-{place}", "up")
            inside = made.inside(host)
            _ip("addr", "add", f"{host}/24", "dev", "eth0", inside=inside)
            for device in ("lo", "eth0"):
                _ip("link", "set", device, "up", inside=inside)
        yield made


def _holder(stack: ExitStack) -> subprocess.Popen[bytes]:
    """Start a process in a namespace of networks of its own."""
    ours = Path("/proc/self/ns/net").readlink()
    holder = subprocess.Popen(
        ["unshare", "--net", "sleep", "infinity"],
        preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - one prctl call
    )
    stack.callback(holder.wait, 20)
    stack.callback(holder.kill)
    until(lambda: Path(f"/proc/{holder.pid}/ns/net").readlink() != ours, "the host has a network of its own")
    return holder


def _ip(*arguments: str, inside: Sequence[str] = ()) -> None:
    subprocess.run([*inside, "ip", *arguments], check=True, capture_output=True)
