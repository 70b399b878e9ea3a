"""The section of the settings with the address of a protocol besides HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dbsp.coordinator.http.section import PORT_MAX
from dbsp.errors import ConfigError
from dbsp.settings import at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSection:
    """The address at which the service listens for a protocol; without a port it does not listen.

    Port 0 is any free one; `coordinator status` names it.

    Tokens, certificate, access log and the bound on requests are those of [http].
    """

    SECTION: ClassVar[str]

    port: int | None = None
    host: str = "127.0.0.1"
    connections_max: int = 64

    def __post_init__(self) -> None:
        """Refuse a number that is no port, and bounds under which no client could connect."""
        if self.port is not None and not 0 <= self.port <= PORT_MAX:
            raise ConfigError(f"not a port: {self.SECTION}.port={self.port}")
        at_least(f"{self.SECTION}.connections_max", self.connections_max, 1)
