"""The section [layout]: shards, hosts and standbys of the workers, and the ways in which a rescale moves state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dbsp.coordinator.decisions.strategies import STRATEGIES
from dbsp.errors import ConfigError
from dbsp.hosts import Zones, check_hosts
from dbsp.settings import at_least, near, one_of

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSection:
    """Fixed sharding when `shards` is given, else dynamic with `dynamic_k`; both count for a new pipeline only.

    `strategy` is how a rescale moves state unless the rescale names another:

    - `cold` stops the steps.
    - `warmup` first copies the state while steps run, on `max_warmup_replicas` workers at a time. It copies until at most
      `acceptable_recovery_lag` bytes are missing.
    - `icadd` and `redistribute` move it in the steps, `keys_per_step` keys of every owner in each.

    `hosts` are the hosts of the workers, as Spark names them. `weights` say how much of the state each should have (1 where
    none is given). On a cluster the hosts must be named, as each worker's state is on its host's disk. Instead, `common_disk`
    says that `data_dir` is on one disk that all hosts reach.

    A host that does not answer for `host_lost_s` counts as lost (0: never). Its workers move to the other hosts if standbys or
    `[checkpoint] copies` have their state, or `common_disk` is set. Otherwise the service ends with an error that names them.

    Each worker has `standbys_per_worker` standbys on other hosts, each with the worker's last published version. The hosts of
    one rack or building have one name in `zones`; a standby is in another zone than its worker, if there is one. Workers are
    spread over zones, too, where the weights of hosts leave the choice.

    `standbys` are folders, each best on a disk of its own. Each holds a copy of every worker's last checkpoints, from which a
    lost database is made again.
    """

    shards: int | None = None
    dynamic_k: float = 0.1
    hosts: list[str] = field(default_factory=list)
    weights: Mapping[str, str] = field(default_factory=dict)
    common_disk: bool = False
    strategy: str = "cold"
    acceptable_recovery_lag: int = 16 * MEBIBYTE
    max_warmup_replicas: int = 2
    keys_per_step: int = 10_000
    standbys: list[str] = field(default_factory=list)
    standbys_per_worker: int = 0
    zones: Mapping[str, str] = field(default_factory=dict)
    host_lost_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse a strategy that does not exist, and limits with which no state would ever move."""
        one_of("layout.strategy", self.strategy, STRATEGIES)
        if self.shards is not None and (self.shards < 1 or self.shards.bit_count() != 1):
            raise ConfigError(f"not a power of two: layout.shards={self.shards}")
        for host in self.weights:
            if host not in self.hosts:
                story, hint = f"layout.weights={host}", f"name it in `hosts`, too; {near(host, self.hosts)}"
                raise ConfigError(f"a weight of a host that is not named: {story}", hint)
        check_hosts(self.offered())
        at_least("layout.acceptable_recovery_lag", self.acceptable_recovery_lag, 0)
        at_least("layout.max_warmup_replicas", self.max_warmup_replicas, 1)
        at_least("layout.keys_per_step", self.keys_per_step, 1)
        at_least("layout.host_lost_s", self.host_lost_s, 0)
        at_least("layout.standbys_per_worker", self.standbys_per_worker, 0)
        if self.standbys_per_worker >= len(self.hosts) and self.standbys_per_worker:
            raise ConfigError(
                f"too few hosts for standbys: layout.standbys_per_worker={self.standbys_per_worker} layout.hosts={self.hosts}",
                "name more hosts: a worker has each standby on another host, and none on its own",
            )
        if not all(isinstance(zone, str) and zone for zone in self.zones.values()):
            raise ConfigError(f"a zone is a name: layout.zones={dict(self.zones)}", 'write zones = { a = "north" }')
        if len(set(self.standbys)) < len(self.standbys) or not all(self.standbys):
            raise ConfigError(
                f"standbys are different folders: layout.standbys={self.standbys}", "remove empty and repeated folders"
            )

    def zone_pairs(self) -> Zones:
        """Return the hosts with their zones, sorted."""
        return tuple(sorted(self.zones.items()))

    def offered(self) -> tuple[tuple[str, float], ...]:
        """Return the hosts with their weights; `ConfigError` for a weight that is not a number."""
        try:
            return tuple((host, float(self.weights.get(host, 1.0))) for host in self.hosts)
        except (TypeError, ValueError):
            raise ConfigError(
                f"a weight is a number: layout.weights={dict(self.weights)}",
                "write a number for each host, such as weights = { a = 2 }",
            ) from None
