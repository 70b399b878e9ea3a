"""Share the `Work` of a run between the driver and its tasks: pickled once, broadcast once, unpickled once per process.

The bytes are sent from the driver to its own workers only; nothing that is read from Kafka or LMDB is ever unpickled.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import pickle
import socket
import sys
from dataclasses import dataclass

from pyspark import cloudpickle

from dbsp.errors import EngineError
from dbsp.runtime.work import Work
from dbsp.version import VERSION

_WORKS_KEPT = 8
USER_MODULE_PREFIX = "dbsp_user_"
"""The prefix of the names of modules that `dbsp.circuit.load` makes of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWork:
    """A `Work` as bytes (user functions included), their digest, which names it in a process, and the driver's version."""

    digest: str
    data: bytes
    engine: str = VERSION


def pack(work: Work) -> PackedWork:
    """Return the pickled `Work`, including the user functions of the circuit.

    Within one process, the same work gives the same digest. The module of a circuit that was loaded from a file is
    pickled with its code, because workers cannot import it by name.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith(USER_MODULE_PREFIX):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    data: bytes = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]
    return PackedWork(digest=hashlib.blake2b(data, digest_size=16).hexdigest(), data=data)


@functools.lru_cache(maxsize=_WORKS_KEPT)
def unpack(packed: PackedWork) -> Work:
    """Return the work, the same object for the same bytes: its worker resources keep databases open for the next task.

    **Errors** `EngineError` in a Python worker that imports another version of dbsp than the driver runs.
    """
    if packed.engine != VERSION:
        raise EngineError(
            f"a Python worker imports another version of dbsp than the coordinator runs: worker={VERSION}"
            f" coordinator={packed.engine} host={socket.gethostname()}",
            "install one version on all hosts; over a running service: `coordinator upgrade`",
        )
    work: Work = pickle.loads(packed.data)  # noqa: S301  (made by this project's driver)
    return work


@functools.cache
def settle(what: str) -> None:  # noqa: ARG001  (the cache's key)
    """Exclude all objects that this process has loaded so far from garbage collection, at the first call with `what`.

    PySpark collects garbage between any two tasks. A collection that also visits the modules of a step takes 60 ms.
    """
    gc.collect()
    gc.freeze()
