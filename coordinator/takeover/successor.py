"""An upgrade without a pause for the start: a process of the other version is ready before the old one stops.

The old process starts the successor with its listening sockets and one end of a pair of sockets. On the pair each
process writes one word a line:

| word | who | meaning |
| --- | --- | --- |
| `ready` | successor | all is loaded that a start needs besides the pipeline's state; on Spark its application runs |
| `go` | old | nothing of the pipeline is open any more; the note of the upgrade is written |
| `running` | successor | it has claimed the epoch, opened the checkpoint, and can take steps |
| `no-room …` | successor | it ends: the cluster has no executors for a second application |
| `failed …` | successor | why it ends |

Invariants
1. The successor opens no file of the pipeline before `go`.
2. The old process ends only after `running`. Before that it can go on: it executes its own version again.
3. The claim of the epoch makes every order of events safe, as at every start.

After `running` the old process executes `launcher`, and the successor asks the kernel to stop it if that one is killed.

On a cluster without room for a second Spark application, the old process says for how long no step could run, and asks.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from dbsp.coordinator.running.notices import Notice, StateChanged
from dbsp.errors import DbspError, EngineError, NoRoomError
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport

READY_S, RUNNING_S, END_S = 300.0, 120.0, 10.0
ROOM_S = 30.0
"""Seconds that a successor waits for executors; a cluster with free cores starts them in some seconds."""
READY, GO, RUNNING, FAILED, NO_ROOM = "ready", "go", "running", "failed", "no-room"
PAIR = "pair"
PR_SET_PDEATHSIG = 1


class _Words:
    """An end of the pair of sockets: words in both directions."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._arrived = end, b""

    def say(self, word: str) -> None:
        """Send a word; ignore that the other process may have ended."""
        with suppress(OSError):
            self._end.sendall(word.replace("\n", "\t").encode() + b"\n")

    def next(self, timeout_s: float | None) -> str:
        """Return the next word; empty if the other process has ended. **Errors** `TimeoutError`."""
        self._end.settimeout(timeout_s)
        while b"\n" not in self._arrived:
            try:
                part = self._end.recv(4096)
            except ConnectionError:
                part = b""
            if not part:
                return ""
            self._arrived += part
        line, _, self._arrived = self._arrived.partition(b"\n")
        return line.decode(errors="replace").replace("\t", "\n")

    def close(self) -> None:
        """Close this end; the other process reads an end of input."""
        self._end.close()


class Successor:
    """The old process's handle of a started process of another version."""

    def __init__(self, command: Sequence[str], sockets: Mapping[str, int], environment: Mapping[str, str]) -> None:
        """Start the successor with the listening sockets, by name; `EngineError` if it cannot be started."""
        mine, theirs = socket.socketpair()
        handles = {PAIR: theirs.fileno(), **sockets}
        text = ",".join(f"{name}={number}" for name, number in handles.items())
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                [*command, f"--succeed={text}"], pass_fds=list(handles.values()), stdin=subprocess.DEVNULL,
                env=dict(environment),
            )  # fmt: skip
        except OSError as error:
            mine.close()
            raise EngineError(f"the other version does not start: {error}") from error
        finally:
            theirs.close()
        self._words = _Words(mine)

    def expect(self, word: str, timeout_s: float) -> None:
        """Wait for a word.

        **Errors** `NoRoomError` if the cluster has none; `EngineError` with its reason if it ends or says another word.
        """
        try:
            said = self._words.next(timeout_s)
        except TimeoutError:
            raise EngineError(f"the other version is not {word} in time: timeout_s={timeout_s:g}") from None
        if said == word:
            return
        if said.startswith(NO_ROOM):
            raise NoRoomError(said.removeprefix(NO_ROOM).strip())
        if said.startswith(FAILED):
            raise EngineError(f"the other version cannot continue: {said.removeprefix(FAILED).strip()}")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        raise EngineError(f"the other version ended before it was {word}: exit_code={self._process.poll()}")

    def go(self) -> None:
        """Hand over the pipeline, which this process has closed; from now on signals go to the successor."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda number, _frame: self._process.send_signal(number))
        self._words.say(GO)

    def become_its_launcher(self) -> NoReturn:
        """Replace this process by the launcher, which waits for the successor; this closes the pair."""
        script = Path(__file__).with_name("launcher.py")
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(  # noqa: S606 - our own script
            sys.executable, (sys.executable, "-I", "-S", str(script), str(self._process.pid))
        )

    def end(self) -> None:
        """End the successor, which has not taken over, or must not."""
        self._words.close()
        self._process.kill()
        self._process.wait()


class Inheritance:
    """The sockets and the words that a successor has from the process before it. An observer on the event loop's thread."""

    def __init__(self, text: str) -> None:
        """Take the sockets that the option `--succeed` names."""
        handles = {name: int(number) for name, _, number in (each.partition("=") for each in text.split(","))}
        for number in handles.values():
            os.set_inheritable(number, False)
        self._words = _Words(socket.socket(fileno=handles.pop(PAIR)))
        self._before, self._has_told = os.getppid(), False
        self._handles = handles

    def socket_for(self, name: str, port: int | None) -> int | None:
        """Return the listening socket of this name if it is at the port of the settings (0: any); close another one."""
        number = self._handles.pop(name, None)
        if number is None:
            return None
        found = socket.socket(fileno=number)
        if port in (0, found.getsockname()[1]):
            return found.detach()
        found.close()
        return None

    def wait_to_go_on(self) -> None:
        """Report that this process is ready, and wait for `go`; exit if the old process continues by itself."""
        self._words.say(READY)
        if self._words.next(None) != GO:
            sys.exit(0)

    def fail(self, error: DbspError) -> None:
        """Report why this process ends."""
        has_no_room = isinstance(error, NoRoomError)
        self._words.say(f"{NO_ROOM} {error.message}" if has_no_room else f"{FAILED} {error}")

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:
        """Ignore the step."""

    def noted(self, notice: Notice) -> None:
        """Report once that this process can take steps; end with the launcher from then on."""
        if isinstance(notice, StateChanged) and notice.state in ("Running", "Paused") and not self._has_told:
            self._has_told = True
            self._words.say(RUNNING)
            threading.Thread(target=self._end_with_launcher, name="dbsp-successor", daemon=True).start()

    def _end_with_launcher(self) -> None:
        """Ask for SIGTERM at the end of the launcher, as soon as the old process has become it and closed the pair."""
        self._words.next(None)
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != self._before:
            os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()  # for ever: the kernel drops the request with its thread
