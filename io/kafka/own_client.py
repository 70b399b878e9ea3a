"""A Kafka client that is made anew when its certificates are renewed.

librdkafka reads certificates and keys when a client is made, and never again. Brokers look at them when a connection
begins. So a client with the old files works until its connections end, and is then refused for ever.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dbsp.errors import ConfigError
from dbsp.reloading import Reloadable


class OwnClient:
    """The client of a process, made at its first use.

    A forked process makes its own client, and forgets the one of its parent without calling `drop`.
    """

    def __init__(
        self, properties: Mapping[str, str], make: Callable[[], Any], drop: Callable[[Any], None] = lambda _: None
    ) -> None:
        """Store how to make and to drop a client; the first use makes it."""
        self._make, self._drop = make, drop
        self._client: Any = None
        self._process = 0
        files = [Path(path) for path in _certificate_files(properties)]
        self._files = Reloadable("certificates", files, partial(_read_certificates, properties if files else {}))

    def renew(self) -> None:
        """Drop the client if its certificates have been renewed; do not call this while the client is in use.

        If the new files do not make a client, the present client stays in use.
        """
        if (
            self._files.look() or self._files.look()
        ):  # twice at once: half-written files make no client, so nothing has to be waited for
            self.close()

    @property
    def made(self) -> bool:
        """Return whether this process has a client."""
        return self._client is not None and self._process == os.getpid()

    def current(self) -> Any:
        """Return the client; make one if there is none."""
        if not self.made:
            self._client, self._process = self._make(), os.getpid()
        return self._client

    def close(self) -> None:
        """Drop the client; the next use makes a new one."""
        client, made, self._client = self._client, self.made, None
        if made:
            self._drop(client)


def _certificate_files(properties: Mapping[str, str]) -> list[str]:
    """Return the files of certificates and keys that a client's properties name."""
    given = properties.items()
    return [path for name, path in given if name.startswith("ssl.") and name.endswith(".location")]


def _read_certificates(properties: Mapping[str, str]) -> None:
    """Make a client that connects to nothing, to see whether its files can be read and belong together."""
    if not properties:
        return
    module = importlib.import_module("confluent_kafka")
    try:
        importlib.import_module("confluent_kafka.admin").AdminClient({**properties, "log_level": 0})
    except module.KafkaException as error:
        raise ConfigError(
            f"not certificates for Kafka: {error.args[0]}", "look at the files in `properties`"
        ) from error
