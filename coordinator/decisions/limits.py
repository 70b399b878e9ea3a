"""Limits of one step: rows, bytes, and the time that the first row waits."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """The most rows and bytes that one step takes, and how long the first waiting row may wait for others."""

    max_rows_per_step: int = 1_000_000
    max_step_bytes: int = 256 * 1024 * 1024
    max_step_delay_ms: int = 20

    def __post_init__(self) -> None:
        """Refuse limits that would stop the pipeline."""
        for name in ("max_rows_per_step", "max_step_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"must be at least 1: {name}={getattr(self, name)}", f"raise `{name}` in [step]")
        if self.max_step_delay_ms < 0:
            raise ConfigError(f"must not be negative: max_step_delay_ms={self.max_step_delay_ms}")
