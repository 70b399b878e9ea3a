"""The ledger as a file: one LMDB environment under `<data_dir>/control`, and the ledger as JSON values.

The name of the form in the file has one of two numbers. Version 0.1.0 reads `OLDER` alone, and ignores fields that it does
not know. So the form is `FORM` as soon as the ledger says something that a version must not ignore (`form_of`).
The same transaction writes both. Source: docs/design/0062.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dbsp.coordinator.decisions import engines
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.decisions.moved_workers import MovedWorker, StandbyPlace
from dbsp.coordinator.decisions.strategies import COLD
from dbsp.coordinator.running.control import Deaths, Ledger, Saved, StoredViews, changed_ledger
from dbsp.coordinator.running.format_window import beyond
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.errors import DataError
from dbsp.hosts import HostChoice, Offered
from dbsp.io.environment import open_environment, release_environment
from dbsp.layout import Layout
from dbsp.plan.signatures import Signatures
from dbsp.steps.timing import timing_from_json, timing_to_json
from dbsp.store import CheckpointId
from dbsp.stored import from_stored, to_stored
from dbsp.stored.levels import BEFORE

FORM = "dbsp control 3"
OLDER = "dbsp control 2"
FORMS = (OLDER, FORM)
"""The forms that this version reads."""


def form_of(ledger: Ledger) -> str:
    """Return the form in which a ledger is stored: the older one if version 0.1.0 can continue from it."""
    return FORM if beyond(ledger) else OLDER


class LmdbControl:
    """The ledger on disk, under `<data_dir>/control`."""

    def __init__(self, data_dir: Path, *, create: bool = True) -> None:
        """Open the environment; with `create` create a missing one, atomically."""
        self._env = open_environment(data_dir / "control", form=FORM, older=(OLDER,), names=("ledger",), create=create)

    def load(self) -> Ledger | None:
        """Return the ledger; raise `DataError` if its checksum is wrong."""
        with self._env.read() as txn:
            return self._get(txn)

    def begin(self, ledger: Ledger) -> Ledger:
        """Write the first ledger unless one exists; return the ledger that exists afterwards."""

        def action(txn: Any) -> Ledger:
            found = self._get(txn)
            if found is None:
                self._put(txn, ledger)
            return found or ledger

        return self._env.write(action)

    def change(self, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
        """Read the ledger, apply the change and write the result in one transaction."""

        def transact(txn: Any) -> Ledger:
            found = self._get(txn)
            changed = changed_ledger(found, epoch, action)
            if changed != found:
                self._put(txn, changed)
            return changed

        return self._env.write(transact)

    def close(self) -> None:
        """Close the environment."""
        release_environment(self._env)

    def _get(self, txn: Any) -> Ledger | None:
        data = txn.get(b"ledger", db=self._env.db("ledger"))
        if data is None:
            return None
        data = bytes(data)
        if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
            file = self._env.path / "data.mdb"
            raise DataError(f"the ledger's checksum is wrong: file={file}", "restore it from a backup")
        return decode_ledger(json.loads(data[4:]))

    def _put(self, txn: Any, ledger: Ledger) -> None:
        data = json.dumps(encode_ledger(ledger), separators=(",", ":"), sort_keys=True).encode()
        txn.put(b"ledger", zlib.crc32(data).to_bytes(4, "little") + data, db=self._env.db("ledger"))
        self._env.put_form(txn, form_of(ledger))


def encode_ledger(ledger: Ledger) -> dict[str, Any]:
    """Return the ledger as JSON values."""
    return {
        "run": ledger.run,
        "fingerprint": ledger.fingerprint,
        "epoch": ledger.epoch,
        "rescale": ledger.rescale,
        "strategy": ledger.strategy,
        "rescale_rows": None if ledger.rescale_rows is None else dict(sorted(ledger.rescale_rows.items())),
        "rescale_excluded": None if ledger.rescale_excluded is None else list(ledger.rescale_excluded),
        "nodes": [list(pair) for pair in ledger.nodes],
        "members": sorted(ledger.members),
        "forming": sorted(ledger.forming),
        "layouts": [to_stored(layout) for _, layout in sorted(ledger.layouts.items())],
        "courses": [_encode_course(migration_plan) for _, migration_plan in sorted(ledger.migration_plans.items())],
        "saved": [_encode_saved(saved) for _, saved in sorted(ledger.saved.items())],
        "accepted": [to_stored(acceptance) for acceptance in ledger.accepted],
        "signatures": None if ledger.signatures is None else ledger.signatures.to_json(),
        "fill": None if ledger.fill is None else to_stored(ledger.fill),
        "views": None if ledger.views is None else {"by": ledger.views.by, "text": ledger.views.text},
        "retired": sorted(ledger.retired),
        "began": dict(sorted(ledger.began.items())),
        "name": ledger.name,
        "input": ledger.input,
        "output": ledger.output,
        "deaths": None if ledger.deaths is None else {"step": ledger.deaths.step, "count": ledger.deaths.count},
        "moved": [asdict(moved) for moved in ledger.moved],
        "hosts": None if ledger.hosts is None else asdict(ledger.hosts),
        "own_disk_since": ledger.own_disk_since,
        "copied": ledger.copied,
        "returned": [list(pair) for pair in sorted(ledger.returned.items())],
        "given_up": ledger.given_up,
        "standbys": [asdict(place) for place in ledger.standbys],
        "level": ledger.level,
        "own_since_us": ledger.own_since_us,
    }


def decode_ledger(found: Mapping[str, Any]) -> Ledger:
    """Return the ledger from JSON values."""
    layouts = {layout.version: layout for layout in map(decode_layout, found["layouts"])}
    migration_plans = [_decode_course(migration_plan, layouts) for migration_plan in found.get("courses", ())]
    saved = [_decode_saved(entry) for entry in found["saved"]]
    return Ledger(
        run=found["run"],
        fingerprint=found["fingerprint"],
        epoch=found["epoch"],
        rescale=found["rescale"],
        strategy=found.get("strategy", COLD),
        rescale_rows=_decode_rows(found.get("rescale_rows")),
        rescale_excluded=_decode_excluded(found.get("rescale_excluded")),
        nodes=tuple((label, token) for label, token in found["nodes"]),
        members=frozenset(found["members"]),
        forming=frozenset(found["forming"]),
        layouts=layouts,
        migration_plans={migration_plan.version: migration_plan for migration_plan in migration_plans},
        saved={entry.version: entry for entry in saved},
        accepted=tuple(from_stored(engines.Acceptance, entry) for entry in found.get("accepted", ())),
        signatures=Signatures.from_json(found.get("signatures")),
        fill=None if found.get("fill") is None else from_stored(Fill, found["fill"]),
        views=None if found.get("views") is None else StoredViews(**found["views"]),
        retired=frozenset(found.get("retired", ())),
        began=dict(found.get("began", {})),
        name=found.get("name", ""),
        input=found.get("input", ""),
        output=found.get("output", ""),
        deaths=_decode_deaths(found.get("deaths")),
        moved=tuple(MovedWorker(**moved) for moved in found.get("moved", ())),
        hosts=_decode_hosts(found.get("hosts")),
        own_disk_since=found.get("own_disk_since", 0),
        copied=found.get("copied"),
        returned=dict(found.get("returned", ())),
        given_up=found.get("given_up", 0),
        standbys=tuple(StandbyPlace(**place) for place in found.get("standbys", ())),
        level=found.get("level", BEFORE),
        own_since_us=found.get("own_since_us"),
    )


def _decode_rows(found: Mapping[str, Iterable[int]] | None) -> dict[str, tuple[int, ...]] | None:
    return None if found is None else {table: tuple(rows) for table, rows in found.items()}


def _decode_excluded(found: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if found is None else tuple(found)


def _decode_hosts(found: Mapping[str, Any] | None) -> HostChoice | None:
    if found is None:
        return None
    named = found["named"]
    return HostChoice(settings=_offered(found["settings"]), named=None if named is None else _offered(named))


def _offered(found: Iterable[Iterable[Any]]) -> Offered:
    """Return pairs of host and weight out of JSON lists."""
    return tuple((host, weight) for host, weight in found)


def _decode_deaths(found: Mapping[str, Any] | None) -> Deaths | None:
    return None if found is None else Deaths(step=found["step"], count=found["count"])


def decode_layout(found: Mapping[str, Any]) -> Layout:
    """Return a layout from JSON values."""
    return Layout(
        version=found["version"], owners=tuple(found["owners"]), workers=tuple(found["workers"]),
        hosts=tuple(found["hosts"]), first_steps=tuple(found["first_steps"]), dynamic_k=found["dynamic_k"],
        offered=_offered(found.get("offered", ())), zones=tuple((host, zone) for host, zone in found.get("zones", ())),
        readers=tuple((table, tuple(workers)) for table, workers in found.get("readers", ())),
    )  # fmt: skip


def _encode_course(migration_plan: MigrationPlan) -> dict[str, Any]:
    """Return a migration plan as JSON values, with the versions of its layouts, which the ledger also contains."""
    return {
        "strategy": migration_plan.strategy, "version": migration_plan.version, "old": migration_plan.old.version,
        "new": migration_plan.new.version,
        "first": migration_plan.first, "budget": migration_plan.budget, "turned": migration_plan.turned,
    }  # fmt: skip


def _decode_course(found: Mapping[str, Any], layouts: Mapping[int, Layout]) -> MigrationPlan:
    return MigrationPlan(
        strategy=found["strategy"], version=found["version"], old=layouts[found["old"]], new=layouts[found["new"]],
        first=found["first"], budget=found["budget"], turned=found["turned"],
    )  # fmt: skip


def _encode_saved(saved: Saved) -> dict[str, Any]:
    positions = [[table, partition, offset] for (table, partition), offset in sorted(saved.positions.items())]
    return {
        "version": saved.version, "checkpoint": to_stored(saved.checkpoint), "positions": positions,
        "timing": timing_to_json(saved.timing), "wall_us": saved.wall_us, "published": saved.published,
    }  # fmt: skip


def _decode_saved(found: Mapping[str, Any]) -> Saved:
    return Saved(
        version=found["version"], checkpoint=from_stored(CheckpointId, found["checkpoint"]),
        timing=timing_from_json(found["timing"]), wall_us=found["wall_us"], published=found["published"],
        positions={(table, partition): offset for table, partition, offset in found["positions"]},
    )  # fmt: skip
