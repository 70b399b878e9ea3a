"""Checks before a start changes anything: whether this version of dbsp can continue from the stored state.

Formats: every file that the pipeline keeps on this host is read. If another version wrote one in a format that this
version does not read, the error names the file, and nothing was written.

Engines: the versions that logged the steps that a start would run again (`engines`). The state machine judges them once
more when it has opened a version. By then there may be a newer version, or one on another host.

Left out: files on other hosts, and topics; they are refused when they are opened.
Source: docs/concepts/rescale.md, docs/faults.md, row 22, docs/design/0022.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dbsp.coordinator.decisions.engines import accepted_anew
from dbsp.coordinator.decisions.recovery import choose
from dbsp.coordinator.running.control import Control, Ledger
from dbsp.coordinator.running.ledger_file import FORMS, form_of
from dbsp.coordinator.settings.config import Config
from dbsp.coordinator.worker_resources import database_home
from dbsp.errors import DataError, EngineError
from dbsp.io import peek as logs
from dbsp.logs import StepLog, StepRecord
from dbsp.storage import peek as storage
from dbsp.storage.examine import versions_in
from dbsp.store import VersionInfo

TRIES = 5


def formats() -> dict[str, int]:
    """Return every kind of bytes that this version stores, with the number of the newest format that it writes."""
    return {"ledger": _number(FORMS[-1]), **logs.formats(), **storage.formats()}


def formats_read() -> dict[str, list[int]]:
    """Return every kind of bytes that this version stores, with all format numbers that it reads."""
    return {kind: [number] for kind, number in formats().items()} | {"ledger": [_number(form) for form in FORMS]}


def ledger_format(ledger: Ledger) -> int:
    """Return the number of the format in which a ledger is stored; another version needs to read it to continue."""
    return _number(form_of(ledger))


def _number(form: str) -> int:
    return int(form.rpartition(" ")[2])


def check_stored(config: Config) -> None:
    """Refuse files of formats that this version does not read; write nothing. No pipeline needs to exist.

    Damaged logs are refused here, too. Damaged databases are not, because a database may have a standby.

    **Errors** `DataError` names the file, the number found and the one known.
    """
    data_dir = config.data_dir
    if not data_dir.is_dir():
        return
    logs.check_ledger(data_dir / "control", FORMS)
    logs.check_logs(data_dir)
    logs.check_outputs(config.output, config.residence)
    for parent in (data_dir / "workers", *config.standbys):
        for home in sorted(parent.glob("*")) if parent.is_dir() else ():
            if not home.name.startswith("."):
                storage.check_database(home)


def check_engines(config: Config, control: Control, steps: StepLog, engine: str, accepting: Iterable[str]) -> None:
    """Refuse to run steps again that another version of the engine has logged; write nothing.

    **Errors** `EngineError` names the steps, the version that logged them, and what to do.
    """
    for left in reversed(range(TRIES)):
        ledger = control.load()
        if ledger is None or not ledger.epoch:
            return
        try:
            _judge(config, ledger, steps, engine, frozenset(accepting))
            return
        except DataError:  # a coordinator at work may have trimmed the records; else recovery reports them
            if not left or control.load() == ledger:
                return


def _judge(config: Config, ledger: Ledger, steps: StepLog, engine: str, accepting: frozenset[str]) -> None:
    records = steps.read(_published_step(ledger))
    try:
        accepted_anew(records, engine, ledger.accepted, accepting)
    except EngineError:
        accepted_anew(_replayed(config, ledger, records), engine, ledger.accepted, accepting)


def _published_step(ledger: Ledger) -> int:
    saved = ledger.saved.get(ledger.published)
    return 0 if saved is None else saved.checkpoint.step


def _replayed(config: Config, ledger: Ledger, records: Sequence[StepRecord]) -> Sequence[StepRecord]:
    """Return the records of the steps that a start would run again, as far as this host can tell.

    A version may be complete and not published yet. Without a complete version on this host the result is empty.
    """
    homes = {worker: database_home(config.data_dir, worker) for worker in ledger.members}
    held: dict[int, tuple[VersionInfo, ...]] = {
        worker: versions_in(home) for worker, home in homes.items() if home.exists()
    }
    choice = choose(held, ledger.layouts, run=ledger.run, fingerprint=ledger.fingerprint)
    return () if choice is None else [record for record in records if record.step >= choice.checkpoint.step]
