"""The settings that the event loop and the command runner work by."""

from __future__ import annotations

from dataclasses import dataclass, field

from dbsp.coordinator.decisions.autoscale import AutoscaleSection
from dbsp.coordinator.decisions.limits import StepLimits
from dbsp.coordinator.decisions.strategies import COLD
from dbsp.coordinator.running.far_standbys import StandbyRule
from dbsp.coordinator.running.lost_hosts import HostLoss
from dbsp.hosts import Offered


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """The intervals and limits of the loop; with `checkpoint_interval_s` None checkpoints are taken only on request.

    `hosts` are those of the settings on which workers may be placed; None where there are no settings, as in tests.
    """

    limits: StepLimits = field(default_factory=StepLimits)
    checkpoint_interval_s: float | None = 10.0
    retention_s: float = 0.0
    rollback_window_s: float = 0.0
    back_off_s: float = 0.2
    back_off_s_max: float = 10.0
    failures_max: int = 5
    max_warmup_replicas: int = 2
    autoscale: AutoscaleSection = field(default_factory=AutoscaleSection)
    strategy: str = COLD
    host_loss: HostLoss = field(default_factory=HostLoss)
    hosts: Offered | None = None
    standbys: StandbyRule = field(default_factory=StandbyRule)
    has_remote_state: bool = False
    """Whether only other processes have the workers' databases open, as on Spark."""
