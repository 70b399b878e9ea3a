"""`doctor`, `backup` and `restore` as an oracle of the simulation on files: whatever was killed, the files are sound.

The files are examined in a copy, as a kill at this moment would leave them: without scratches, which no start trusts. The
simulated input log is in memory, so its rows are written into the copy as an embedded one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from dbsp.algebra.table import Table
from dbsp.coordinator.backup.making import make
from dbsp.coordinator.backup.restoring import restore
from dbsp.coordinator.checks.doctor import diagnose
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.pushed import Push
from dbsp.plan.plan import Plan
from dbsp.runtime.memory_logs import MemoryInputLog
from tests.coordinator import fakes
from tests.coordinator.shop import settings_text


def copied(data: Path, inputs: MemoryInputLog, plan: Plan, home: Path) -> Config:
    """Make a pipeline's folder in `home` out of a simulated data folder; return its settings."""
    home.mkdir()
    (home / "pipeline.toml").write_text(settings_text("[input]\npartitions = 2\n"))
    config = load_config(home / "pipeline.toml", environment={})
    shutil.copytree(data, config.data_dir, ignore=_thrown_away)
    with closing(EmbeddedInputLog(config.data_dir, plan.tables, partitions=inputs.spread, create=True)) as log:
        for table in plan.tables:
            for table_name, partition, push in _pushes(inputs, table):
                log.append(table_name, push, partition=partition)
    return config


def _thrown_away(folder: str, names: list[str]) -> list[str]:
    """Scratches, rubbish, and the places of readers."""
    del folder
    return [
        name for name in names if name.startswith(("scratch-", "rubbish-")) or ".new-" in name or name == "lock.mdb"
    ]


def _pushes(inputs: MemoryInputLog, table: Table) -> Iterator[tuple[str, int, Push]]:
    for partition in range(inputs.spread):
        for change in inputs._kept.get((table.name, partition), []):
            yield table.name, partition, Push(batch=change.batch, operations=change.operations)


def check_sound(config: Config, when: str) -> None:
    """Fail unless the doctor calls the files sound."""
    found = diagnose(config)
    fakes.must(not found.findings, f"the doctor calls sound files broken, {when}: {[f.what for f in found.findings]}")


def through_a_backup(config: Config, home: Path, fingerprint: str) -> Path:
    """Back the pipeline up and restore it into `home`; return the data folder there."""
    named, _ = make(config, home.with_name("backups"), lambda *_: None)
    home.mkdir()
    shutil.copy(config.folder / "pipeline.toml", home / "pipeline.toml")
    there = load_config(home / "pipeline.toml", environment={})
    restore(named, there, plan=cast(Any, SimpleNamespace(fingerprint=fingerprint)))
    return there.data_dir
