"""The process in which a running service makes a backup: `python -m dbsp.coordinator.backup.child`, started by `process`.

This process holds the pins, for two reasons. LMDB lets a process open a file once. A map that grows waits for the readers
of its own process. The pins end with this process, which ends when its parent does.

Protocol, a line of JSON each way; the first line in is the settings, pickled, in base64:

    child   {"ready": true}
    parent  {"folder"}, while no step runs                   child  {"pinned": {"made", "step", "bytes"}}
    child   {"phase": "checking"}, then {"done": {"folder", …}}; or {"error": {…}} at any point

If the parent sends `{}`, the process only frees the reader slots of killed processes.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO

import dbsp.coordinator.garbage  # noqa: F401 - first, since it takes effect on the imports that follow
from dbsp.coordinator.backup import making
from dbsp.coordinator.children import failure, put
from dbsp.coordinator.settings.config import Config
from dbsp.errors import DbspError, InternalError


def main() -> None:
    """Make one backup, as the parent asks."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    config = pickle.loads(base64.b64decode(source.readline()))  # noqa: S301 - our own parent's
    put(sink, {"ready": True})
    asked = json.loads(source.readline() or "{}")
    threading.Thread(target=_end_with, args=(source,), daemon=True).start()
    try:
        if asked:
            put(sink, {"done": _make(config, Path(asked["folder"]), sink)})
        else:
            with making.pinning(config):
                pass
            put(sink, {"done": {}})
    except DbspError as error:
        put(sink, failure(error))
    except Exception as error:  # noqa: BLE001 - the parent reports it to the caller
        put(sink, failure(InternalError(f"{type(error).__name__}: {error}")))


def _make(config: Config, folder: Path, sink: BinaryIO) -> dict[str, Any]:
    with making.pinning(config) as pinned:
        made = making.begin(folder, pinned.step)
        put(sink, {"pinned": {"made": str(made), "step": pinned.step, "bytes": pinned.bytes}})
        with making.deleted_unless_done(made):
            making.copy(pinned, made)
    with making.deleted_unless_done(made):
        put(sink, {"phase": "checking"})
        named, manifest = making.finish(config, pinned, made)
    return {"folder": str(named), **manifest.as_json()}


def _end_with(source: BinaryIO) -> None:
    """End the process when the parent ends, because no program would report this backup."""
    while os.read(source.fileno(), 1):  # not `source.read`, whose lock would be held at the end
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
