"""The contents of `/v1/status` and `/readyz`, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from dbsp.coordinator.backup.process import BackupProgress
from dbsp.coordinator.decisions.alarms import Alarm
from dbsp.coordinator.decisions.cutting import Positions
from dbsp.coordinator.running.progress import MovingProgress, RescaleProgress, WaitingRescale
from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.running.watch import Health, unread_rows
from dbsp.logs import Waiting


def snapshot_as_json(now: Snapshot) -> dict[str, Any]:
    """Return the service as of the last event, as JSON values."""
    report, past = now.last_report, now.past_error
    return {
        "state": now.state, "epoch": now.epoch, "step": now.step, "version": now.version,
        "checkpoint_step": now.checkpoint_step, "replaying": now.replaying, "rows_in": now.rows_in,
        "rows_out": now.rows_out, "dead_letters": now.dead, "state_bytes": now.state_bytes,
        "checkpoints": now.checkpoints, "rollbacks": now.rollbacks, "checkpoint_seconds": now.checkpoint_seconds,
        "last_step_seconds": report.seconds if report else None,
        "processed": [
            {"table": table, "partition": partition, "offset": offset}
            for (table, partition), offset in sorted(now.processed.items())
        ],
        "last_error": now.last_error,
        "past_error": None if past is None else {"message": past.message, "over": at(past.over_s)},
        "halt": None if now.halt is None else asdict(now.halt), "rescale_waiting": as_json(now.waiting),
        "moved_workers": [
            {
                "worker": moved.worker, "host": moved.host, "lost_host": moved.lost, "epoch": moved.epoch,
                "at": at(moved.wall_us / 1e6), "left_database": moved.stray,
            }
            for moved in now.moved
        ],
    }  # fmt: skip


def as_json(
    progress: RescaleProgress | MovingProgress | WaitingRescale | BackupProgress | None,
) -> dict[str, Any] | None:
    """Return the progress of a rescale or a backup as JSON values; None if there is none."""
    return None if progress is None else asdict(progress)


def health_as_json(health: Health, tables: Sequence[str], processed: Positions | None) -> dict[str, Any]:
    """Return the alarms, inputs and running command of the last look, as JSON values for the status.

    The number of waiting rows is None while the positions in `processed` are unknown.
    """
    rows: dict[str, int] = {} if processed is None else unread_rows(health, processed)
    waits = {wait.table: wait for wait in health.waits}
    doing = health.doing
    return {
        "alarms": [alarm_as_json(alarm) for alarm in health.alarms],
        "inputs": [_input_as_json(table, rows.get(table), waits.get(table)) for table in sorted(tables)],
        "doing": None if doing is None else {
            "command": doing.command, "step": doing.step, "since": at(doing.since_unix_s),
            "seconds": round(health.doing_s, 3), "workers_awaited": list(health.awaited),
            "hosts_away": list(health.hosts_away),
        },
        "clock_ahead_seconds": round(health.clock_ahead_s, 3),
    }  # fmt: skip


def _input_as_json(table: str, rows: int | None, wait: Waiting | None) -> dict[str, Any]:
    found = {"table": table, "waiting_rows": rows, "away": None, "place": None, "since": None}
    return found if wait is None else found | {"away": wait.reason, "place": wait.place, "since": at(wait.since_s)}


def alarm_as_json(alarm: Alarm) -> Mapping[str, Any]:
    """Return an alarm as JSON values."""
    return {"kind": alarm.kind, "about": alarm.about, "since": at(alarm.since_s), "text": alarm.text}


def at(unix_s: float) -> str:
    """Format seconds since 1970 as an ISO 8601 time in UTC, with milliseconds.

    **Example**

    >>> at(1_700_000_000.25)
    '2023-11-14T22:13:20.250+00:00'
    """
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")
