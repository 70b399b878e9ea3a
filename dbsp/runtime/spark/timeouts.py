"""Order two time-outs: a worker's silence is noticed before Spark gives up its executor.

After giving up an executor, Spark runs its tasks again, on another host or in another process of the same host. The first
attempt may still run, because a stopped or disconnected executor is not dead. A late task changes nothing (`dbsp.storage`), but
a step that waits for a second attempt waits for both time-outs. So `worker_silence_s` must end first. The job is then cancelled,
a new epoch rejects whatever the silent worker still writes, and the pipeline recovers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from dbsp.errors import ConfigError

GIVEN_UP_AFTER = 1.5
"""Factor: unless the settings say otherwise, Spark gives an executor up after 1.5 times `worker_silence_s`."""

_LEAST_S = 30
"""Least time-out in seconds; Spark refuses a time-out that is not above the interval of heartbeats, which is 10 s."""

_NETWORK, _BLOCKS, _WORKERS = (
    "spark.network.timeout",
    "spark.storage.blockManagerHeartbeatTimeoutMs",
    "spark.worker.timeout",
)
_UNITS_S = {
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
}  # fmt: skip
_BARE_S = {_NETWORK: 1.0, _BLOCKS: 1e-3, _WORKERS: 1.0}
"""The unit, in seconds, of a setting whose value names none."""


def timeouts(worker_silence_s: float) -> dict[str, str]:
    """Return the settings under which Spark gives up an executor only after `worker_silence_s`.

    >>> timeouts(120.0)["spark.network.timeout"]
    '180s'
    """
    after = max(math.ceil(worker_silence_s * GIVEN_UP_AFTER), _LEAST_S)
    return {_NETWORK: f"{after}s", _WORKERS: str(after), "spark.network.timeoutInterval": "10s"}


def check_timeouts(worker_silence_s: float, conf: Mapping[str, str]) -> None:
    """Refuse settings under which Spark would give up an executor before its silence is noticed.

    **Errors** `ConfigError` names both settings.
    """
    for name, unit_s in _BARE_S.items():
        if name not in conf:
            continue
        seconds = _seconds(name, str(conf[name]), unit_s)
        if seconds <= worker_silence_s:
            raise ConfigError(
                f"Spark would run a silent worker's tasks again before its silence is noticed: {name}={conf[name]}"
                f" worker_silence_s={worker_silence_s:g}",
                f"set `worker_silence_s` in [spark] below {seconds:g}, or `{name}` above {worker_silence_s:g} s",
            )


def _seconds(name: str, text: str, unit_s: float) -> float:
    """Return a time as Spark reads it, in seconds.

    >>> [_seconds("x", text, 1.0) for text in ("90", "2min", "500ms", "1h")]
    [90.0, 120.0, 0.5, 3600.0]
    """
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if found is None or (found[2] and found[2] not in _UNITS_S):
        raise ConfigError(f"not a time: {name}={text}", 'write it as Spark does, such as "120s" or "2min"')
    return int(found[1]) * (_UNITS_S[found[2]] if found[2] else unit_s)
