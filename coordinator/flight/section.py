"""The section [flight] of the settings: the address of Arrow Flight SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dbsp.coordinator.settings.address_section import AddressSection


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightSection(AddressSection):
    """The address of Arrow Flight SQL; a call counts as a request."""

    SECTION: ClassVar[str] = "flight"
