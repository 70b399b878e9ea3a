"""Taking a whole database away, so that nobody of an older epoch can do it later.

A coordinator that was stopped while it deletes the database of a worker that left may wake up when the worker is back. So the
folder is renamed inside a write transaction that has checked the epoch (6): whoever raises the epoch meanwhile ends the one that
is stopped inside, and one that wakes up before is refused.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from dbsp.errors import DataError
from dbsp.storage.durable import Durable
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.worker import DURABLE, WRITERS


def discard_folder(home: Path, epoch: int, gone: Path) -> None:
    """Rename the database's folder to `gone` and delete it; a folder that cannot be read as a database is deleted as it is.

    **Errors** `FencedError` if a newer epoch owns it.
    """
    shutil.rmtree(gone, ignore_errors=True)
    try:
        durable = Durable(home / DURABLE, home / WRITERS, MAP_SIZE_BYTES)
    except DataError:
        home.rename(gone)
    else:
        try:
            durable.raise_epoch(epoch)
            durable.write(epoch, lambda _txn: home.rename(gone))
        finally:
            durable.close()
    shutil.rmtree(gone, ignore_errors=True)
