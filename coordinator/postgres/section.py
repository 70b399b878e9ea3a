"""The section [postgres] of the settings: the address of PostgreSQL's protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dbsp.coordinator.settings.address_section import AddressSection


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSection(AddressSection):
    """The address of PostgreSQL's protocol; a statement counts as a request."""

    SECTION: ClassVar[str] = "postgres"
