"""An upgrade of dbsp under a running pipeline, as the service sees it: the old version leaves, and the new one starts.

The old version asks the installed one, in processes of its own, whether it can start here. The questions are which formats
it reads, and whether it reads these settings, this circuit and these files. Finished steps must give the same outputs again
(`proving`). Then the old version stops at a checkpoint with
no later logged step and leaves a note (`upgrade.json` in the data folder). It becomes the new one by `exec` of the same
command line, so a supervisor sees no end. The new version reads the note, reports for how long no step could run, and
deletes it.

Only the report depends on the note. A kill may fall at any moment: either version then continues from the checkpoint when
it is started. Only a step that the other one has logged above the checkpoint prevents this. Times are of the wall clock,
which both processes share.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from dbsp.coordinator.address import NOTE_FILE, write_whole
from dbsp.coordinator.build import folder_ledger
from dbsp.coordinator.checks.preflight import formats, ledger_format
from dbsp.coordinator.decisions import events, states
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.format_window import beyond
from dbsp.coordinator.running.notices import Notice, Notify, StateChanged, Upgraded
from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.takeover.proof_copies import NOT_NEEDED, ProofCopies, discard_copies
from dbsp.coordinator.takeover.proving import Proof
from dbsp.coordinator.takeover.successor import READY, READY_S, Successor
from dbsp.errors import ConfigError, EngineError, NoRoomError, UnavailableError
from dbsp.io.connectors import KINDS
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport
from dbsp.version import VERSION

CHECK_TIMEOUT_S = 300.0
WORDS_MAX = 2000
IGNORED = frozenset({"letter log"})
"""Kinds of files that version 0.1.0 does not have, and leaves alone."""
CLOSED = "the pipeline goes on; the other version can only continue from a backup of before the upgrade"
Met = Callable[[states.State], Any]
Copied = Callable[[], AbstractContextManager[ProofCopies]]
"""A function that opens a block in which a proof can use copies of the files that the other version cannot read."""
UNHARMED = "repair what is installed, or install another version; the pipeline was not touched and goes on"


def nothing_copied() -> AbstractContextManager[ProofCopies]:
    """Copy nothing: the other version reads the workers' files."""
    return nullcontext(NOT_NEEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The command line of the service, without the options of one start only (`--rescale`, `--accept-engine`).

    `python` is the interpreter that a user has named for the other version.
    """

    interpreter: tuple[str, ...]
    arguments: tuple[str, ...]
    python: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables of the other version: Spark's Python workers use its interpreter, too."""
        return {**os.environ, **({} if self.python is None else {"PYSPARK_PYTHON": self.python})}

    def other(self, *more: str, arguments: bool = True) -> tuple[str, ...]:
        """Return the command line of the installed version."""
        return (*self.interpreter, *(self.arguments if arguments else ()), *more)

    def by(self, python: str) -> Restart:
        """Return the same by another interpreter; `ConfigError` if it cannot be run."""
        if not os.access(python, os.X_OK) or not Path(python).is_absolute() or Path(python).is_dir():
            raise ConfigError(
                f"not an interpreter that can be run: python={python}",
                "give the whole path of the other environment's Python, such as /opt/dbsp-0.2/bin/python",
            )
        return replace(self, interpreter=(python, "-m", "dbsp.coordinator.serve"), python=python)

    def become(self) -> NoReturn:
        """Replace this process by the installed version; open files are closed by the system, the number stays."""
        command = self.other()
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(command[0], command, self.environment)  # noqa: S606 - our own command line


def own_interpreter() -> tuple[str, ...]:
    """Return what precedes the arguments of our own command line: the interpreter, its options, the script or module."""
    return (sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """The answer to an upgrade request before the restart: both versions, step and epoch, the process, and the proof."""

    before: str
    to: str
    step: int
    epoch: int
    pid: int
    proof: Proof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherVersion:
    """The other version, and the steps whose outputs it computed again.

    Version 0.1.0 cannot do that, and does not prepare its start beside a service: it has no proof, and `succeeds` is False.
    """

    version: str
    proof: Proof | None = None
    succeeds: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A finished upgrade: both versions, the first step, and for how long no step could run."""

    before: str
    to: str
    step: int
    pause_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaving:
    """The version to become, the time of the request, and whether the pipeline was paused and took no step anyway.

    A `successor` is ready to go on; without one this process becomes the other version, by `restart`.
    """

    target: OtherVersion
    at_us: int
    paused: bool
    restart: Restart
    successor: Successor | None = None


class Upgrades:
    """The upgrade from either side: it writes and reads the note. An observer, called on the event loop's thread."""

    def __init__(self, config: Config, clock: Clock, tell: Notify) -> None:
        """Read the note that the old version has left; `tell` receives the notice of a finished upgrade."""
        self.restart: Restart | None = None
        self.sockets: Mapping[str, int] = {}
        """The listening sockets for a successor, by name."""
        self.prepared_s = 0.0
        """The seconds that this process took to load and to prepare its start."""
        self._made_s, self._start_s = clock.monotonic_s(), 0.0
        self._config, self._clock, self._tell = config, clock, tell
        self._last_step_us = 0
        self._leaving: _Leaving | None = None
        self._found = read_note(config.data_dir)
        discard_copies(config.data_dir)  # a crash amid an upgrade left them
        self._arrival: Arrival | None = None

    # --- the old version ----------------------------------------------------------------------------------------

    def leave(
        self,
        now: Callable[[], Snapshot],
        checkpoint: Callable[[], Any],
        submit: Callable[[events.Request, Met], Any],
        python: str | None = None,
        *,
        accepts_pause: bool = False,
        copied: Copied = nothing_copied,
    ) -> Departure:
        """Have the service end for another version, after a check that it can start here; see `Service.upgrade`."""
        other = self._restart_by(python, now())
        target = examine(other, self._config, copied)
        if target.version == VERSION:
            return self._departure(now())
        successor = None
        if python is not None and target.succeeds:
            successor = Successor(other.other(), self.sockets, other.environment)
        try:
            if successor is not None and not self._is_ready(successor, accepts_pause):
                successor.end()
                successor = None
            checkpoint()  # taken while steps run, so that the last one, for which they wait, is small
            leaving = _Leaving(
                target=target, at_us=self._clock.wall_us(), paused=now().state == "Paused", restart=other,
                successor=successor,
            )  # fmt: skip
            self._leaving = leaving
            submit(events.UpgradeAsked(), lambda state: self._left(leaving, state))
        except BaseException:
            if successor is not None:
                successor.end()
            raise
        return self._departure(now())

    def _is_ready(self, successor: Successor, accepts_pause: bool) -> bool:
        """Wait until the successor is ready; return False if the cluster has no room for it and a pause is accepted.

        **Errors** `NoRoomError` with the expected pause if none is accepted; `EngineError` if the successor ends.
        """
        try:
            successor.expect(READY, READY_S)
        except NoRoomError as error:
            if accepts_pause:
                return False
            raise NoRoomError(
                f"{error.message}; if this application ends before the other one starts, no step can run for about"
                f" {self._start_s:.0f} s, as long as the start of this process took",
                "accept the pause with `--yes`, or leave cores free for a second application (`spark.cores.max`)",
            ) from None
        return True

    def _left(self, leaving: _Leaving, state: states.State) -> bool | None:
        """Return True once the service has ended as requested; raise `UnavailableError` if the upgrade was given up."""
        facts = state.facts
        if not facts.requested.upgrade:
            if self._leaving is leaving:  # leave a later request as it is
                self._leaving = None
            raise UnavailableError(f"the upgrade was abandoned: {facts.upgrade_error}", "the old version continues")
        return True if isinstance(state, states.Stopped | states.Broken) else None

    def _restart_by(self, python: str | None, now: Snapshot) -> Restart:
        """Return the command line of the other version: that of the interpreter `python`, or of what is installed now.

        **Errors** `ConfigError` inside another program; `UnavailableError` while the pipeline cannot stop between two steps.
        """
        if self.restart is None:
            raise ConfigError(
                "a service inside another program cannot start anew by itself",
                "start it with `dbsp-coordinator`, or stop it and start it as the other version",
            )
        other = self.restart if python is None else self.restart.by(python)
        if now.state not in ("Running", "Paused", "Checkpointing") or now.rescale is not None:
            story = "a rescale is under way" if now.rescale is not None else f"state={now.state}"
            raise UnavailableError(f"an upgrade begins between two steps: {story}", "ask again when it is over")
        return other

    def _departure(self, now: Snapshot) -> Departure:
        """Return the answer to an upgrade request when all is stopped, or when there is nothing to do."""
        target = OtherVersion(version=VERSION) if self._leaving is None else self._leaving.target
        return Departure(
            before=VERSION, to=target.version, step=now.step, epoch=now.epoch, pid=os.getpid(), proof=target.proof
        )

    @property
    def successor(self) -> Successor | None:
        """Return the process that is ready to go on, if the service ended for it."""
        return None if self._leaving is None else self._leaving.successor

    def become(self, now: Snapshot | None) -> None:
        """Replace this process, if the service ended for an upgrade; all else of it is closed.

        It becomes the other version, with a note about `now`; without `now` it becomes its own version again.
        """
        if self.restart is None or self._leaving is None:
            return
        if now is None:  # the successor did not start: this version goes on
            self.restart.become()
        self.leave_note(now)
        self._leaving.restart.become()

    def leave_note(self, now: Snapshot) -> None:
        """Write the note for the new version, whole or not at all; the upgrade goes on if the disk takes no note."""
        if self._leaving is None:
            return
        since = max(self._last_step_us, self._leaving.at_us)
        note = {**asdict(self._departure(now)), "since_us": since, "paused": self._leaving.paused}
        with suppress(OSError):
            write_whole(self._config.data_dir / NOTE_FILE, json.dumps(note) + "\n")

    # --- the new version ----------------------------------------------------------------------------------------

    def arriving(self, facts: states.Facts) -> states.Facts:
        """Return the facts with the pause of the old version, which only the note keeps."""
        if not self._found.get("paused"):
            return facts
        return replace(facts, requested=replace(facts.requested, pause=True))

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:  # noqa: ARG002
        """Record when a step has ended: a pause would begin at that time."""
        self._last_step_us = self._clock.wall_us()

    def noted(self, notice: Notice) -> None:
        """Finish the upgrade when the pipeline first could take a step: when it is Running or Paused."""
        if not isinstance(notice, StateChanged) or notice.state not in ("Running", "Paused"):
            return
        if not self._start_s:
            self._start_s = self.prepared_s + self._clock.monotonic_s() - self._made_s
        if self._found:
            self._arrive(notice.step)

    def _arrive(self, step: int) -> None:
        found, self._found = self._found, {}
        with suppress(OSError):
            (self._config.data_dir / NOTE_FILE).unlink(missing_ok=True)
        if found["before"] == VERSION:  # the old version came back: nothing was upgraded
            return
        pause = max(0.0, (self._clock.wall_us() - found["since_us"]) / 1e6)
        self._arrival = Arrival(before=found["before"], to=VERSION, step=step, pause_seconds=round(pause, 6))
        self._tell(Upgraded(**asdict(self._arrival)))

    def status(self) -> dict[str, Any] | None:
        """Return the upgrade that started this process, as JSON values; None if no upgrade did."""
        return None if self._arrival is None else asdict(self._arrival)


def read_note(data_dir: Path) -> dict[str, Any]:
    """Return the note of an upgrade under way; empty if there is none, or none that can be read."""
    try:
        found = json.loads((data_dir / NOTE_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and {"before", "since_us"} <= set(found) else {}


def note_failure(data_dir: Path, words: str, *, goes_on: bool = False) -> None:
    """Add to the note why the new version did not start, for the client that asked for the upgrade.

    With `goes_on` the old version starts again by itself.
    """
    found = read_note(data_dir)
    if found:
        with suppress(OSError):
            write_whole(data_dir / NOTE_FILE, json.dumps({**found, "failed": words, "goes_on": goes_on}) + "\n")


# --- asking the installed version -----------------------------------------------------------------------------------


def examine(restart: Restart, config: Config, copied: Copied = nothing_copied) -> OtherVersion:
    """Return the installed version if it can take this pipeline over; prepare what its start would wait for.

    Inside `copied` the other version finds the state that it needs for the proof.

    **Errors** `EngineError` if it does not read a format, cannot start, or gives other outputs for finished steps.
    """
    reported = _formats_of(_asked(restart.other("--formats", arguments=False), config))
    version = str(reported["engine"])
    if version == VERSION:
        return OtherVersion(version=version)
    _refuse_unread(config, version, reported["formats"])
    proof = _proof(restart, config, copied) if reported["proves"] else None
    if proof is None:
        _asked(restart.other("--check"), config)
    _asked((*restart.interpreter[:1], "-m", "dbsp.zset.kernels.compile"), config)
    if config.pipeline.runtime != "local":
        with suppress(EngineError):  # Spark starts without its archive, too
            _asked((*restart.interpreter[:1], "-m", "dbsp.runtime.spark.prepare"), config)
    return OtherVersion(version=version, proof=proof, succeeds=bool(reported["proves"]))


def _proof(restart: Restart, config: Config, copied: Copied) -> Proof:
    """Have the other version check itself and run finished steps again; return what it has proved, or why it has not."""
    with copied() as found:
        if found.left_out:
            _asked(restart.other("--check"), config)
            return Proof(left_out=found.left_out, copied_bytes=found.sent_bytes)
        proof = _proof_of(_asked(restart.other("--check", "--prove"), config))
        return replace(proof, copied_bytes=found.sent_bytes)


def _refuse_unread(config: Config, version: str, read: dict[str, list[int]]) -> None:
    """Refuse a version that does not read what is stored; name what the pipeline has that it does not know."""
    ledger = folder_ledger(config)
    stored = used(config) if ledger is None else used(config) | {"ledger": ledger_format(ledger)}
    wrong = unread(stored, read)
    if not wrong:
        return
    closed = beyond(ledger) if ledger is not None and stored["ledger"] not in read.get("ledger", []) else ()
    reason = f" ({'; '.join(closed)})" if closed else ""
    raise EngineError(
        f"the installed version does not read what this one writes: version={version} {wrong}{reason}",
        CLOSED if closed else UNHARMED,
    )


def used(config: Config) -> dict[str, int]:
    """Return the formats that this version writes with these settings, with their numbers."""
    of_kinds = {name for kinds in KINDS.values() for kind in kinds.values() for name in kind.stored_formats}
    unused = of_kinds - config.input.stored_formats.keys() - config.output.stored_formats.keys()
    return {name: number for name, number in formats().items() if name not in unused}


def unread(written: dict[str, int], read: dict[str, list[int]]) -> str:
    """Describe the formats that one version writes and another does not read; empty if there are none.

    A version that does not know a kind of `IGNORED` at all ignores its files.

    >>> unread({"chunk": 2, "ledger": 2}, {"chunk": [1, 2], "ledger": [3]})
    'ledger: written=2 read=[3]'
    >>> unread({"letter log": 1}, {})
    ''
    """
    return "; ".join(
        f"{kind}: written={number} read={read.get(kind, [])}"
        for kind, number in sorted(written.items())
        if number not in read.get(kind, []) and (kind in read or kind not in IGNORED)
    )


def _asked(command: Sequence[str], config: Config) -> str:
    """Run a command of the installed version and return its output; `EngineError` with its words if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - our own command line
            command, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"the installed version does not start: {error}", UNHARMED) from error
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip())[-WORDS_MAX:]
        story = f"pipeline={config.pipeline.name} exit_code={done.returncode}"
        raise EngineError(f"the other version cannot take over: {story}\n{words}", UNHARMED)
    return done.stdout


def _formats_of(text: str) -> dict[str, Any]:
    """Parse the output of `--formats`."""
    try:
        found = json.loads(text)
        return {
            "engine": found["engine"],
            "formats": dict(found["formats"]),
            "proves": found.get("proves", False),  # 0.1.0 does not
        }
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(f"the installed version did not report its formats: said={text[:200]!r}", UNHARMED) from error


def _proof_of(text: str) -> Proof:
    """Parse the output of `--check --prove`: its last line."""
    try:
        return Proof(**json.loads(text.rstrip().rpartition("\n")[2]))
    except (ValueError, TypeError) as error:
        raise EngineError(f"the installed version did not report its proof: said={text[-200:]!r}", UNHARMED) from error
