"""The interface for the layout: which worker owns which shards, the plan of a rescale, and the rescale."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dbsp.coordinator.decisions import events, states
from dbsp.coordinator.decisions.recovery import serves
from dbsp.coordinator.decisions.rescaling import is_moving
from dbsp.coordinator.decisions.strategies import COLD, STRATEGIES
from dbsp.coordinator.layouts import RescalePlan, layout_as_json, plan_rescale
from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running.event_loop import SETTLED
from dbsp.coordinator.running.unusable_hosts import UnusableHost, excluded, lost_now, unusable
from dbsp.coordinator.serving.core import ServiceCore, refuse_halted, refuse_in
from dbsp.errors import ConfigError, UnavailableError
from dbsp.hosts import Offered, check_hosts, remaining
from dbsp.layout import Layout
from dbsp.runtime.runtime import MoveReport

LOOK_S = 5.0
"""For how long a rescale waits until the loop has looked at the disks of the hosts: a step may be under way."""
SETTLED_NAMES = tuple(kind.__name__ for kind in SETTLED)


class Rescales(ServiceCore):
    """The methods for changing the number of workers."""

    def plan_rescale(self, workers: int, hosts: Offered | None = None) -> RescalePlan:
        """Return what a rescale to `workers` would move after the present moves.

        Without named hosts, no worker is placed on a lost host, nor on one whose disk cannot be written. A host that is named
        is waited for.
        **Errors** `ConfigError` for an impossible count; `UnavailableError` if no host on offer can get workers.
        """
        offered = self._offered(hosts)
        unusable = () if hosts is not None else self._unusable(offered)
        usable = remaining(offered, excluded(offered, unusable))
        layout, step = replace(self._layout_to_be(), offered=usable), self.snapshot.step
        found = plan_rescale(
            layout, workers, step=step, state_bytes=self._state_bytes(), rates=self._rates,
            partitions=self._loop.runner.partitions or None,
        )  # fmt: skip
        return replace(found, hosts_excluded=unusable)

    def _unusable(self, offered: Offered) -> tuple[UnusableHost, ...]:
        """Return the hosts that get no worker: the lost ones, and, if the loop can ask soon, those with broken disks."""
        hosts = self._loop.runner.silent_hosts
        if self._thread is None:
            return ()
        if self.snapshot.state in SETTLED_NAMES:
            with suppress(TimeoutError):
                asked = self._loop.ask(lambda runtime, _facts: unusable(runtime, hosts, offered))
                found: tuple[UnusableHost, ...] = asked.result(LOOK_S)
                return found
        return lost_now(self._loop.runner.running, hosts, offered)

    def _offered(self, named: Offered | None) -> Offered:
        """Return the hosts that a rescale names, else those on offer.

        **Errors** `ConfigError` for named hosts where the settings name none.
        """
        if named is None:
            ledger = self.built.parts.control.load()
            return self.layout().offered if ledger is None or ledger.offered is None else ledger.offered
        if not self.config.layout.hosts:
            raise ConfigError(
                f"a rescale cannot name hosts where [layout] names none: hosts={[host for host, _ in named]}",
                'name the hosts of the workers first: hosts = ["10.0.0.1"] in [layout]',
            )
        if not named:
            raise ConfigError("a rescale names at least one host, or none to keep those on offer")
        check_hosts(named)
        return named

    def _state_bytes(self) -> dict[int, int]:
        """Return the state bytes of every worker as of the last step; empty before the first step in this layout."""
        now = self.snapshot
        if now.last_report is None or now.state_bytes is None:
            return {}
        return {worker.worker: worker.state_bytes for worker in now.last_report.workers}

    def rescale(
        self,
        workers: int,
        timeout_s: float | None = None,
        *,
        strategy: str | None = None,
        hosts: Offered | None = None,
        plan: RescalePlan | None = None,
    ) -> MoveReport | None:
        """Change the number of workers, and their hosts; return when a checkpoint in the new layout is published.

        Named `hosts` are on offer from now on, until another rescale or the settings name others: workers leave all
        other hosts. With None the hosts on offer stay. Hosts that have no worker yet are waited for.

        Strategy "cold" stops the steps until all state is moved. Strategy "warmup" moves most of it while steps run.
        Strategies "icadd" and "redistribute" move it key by key in the steps. None means the strategy of the settings.
        The request is durable before anything moves, so a crash resumes it. While keys move, another rescale waits. `plan` is
        the result of `plan_rescale` for the same request, if there is one. The
        result has the bytes and shards that moved since the request; None if the layout has not changed.

        **Errors** `UnavailableError` if the rescale was abandoned: because of an error, `cancel_rescale`, or a newer
        request.
        """
        strategy = strategy or self.config.layout.strategy
        if strategy not in STRATEGIES:
            raise ConfigError(f"no such strategy: strategy={strategy}", f"known: {', '.join(STRATEGIES)}")
        now = self.snapshot
        plan = plan or self.plan_rescale(workers, hosts)
        left_out = None if hosts is not None else tuple(sorted(each.host for each in plan.hosts_excluded))
        if not plan.changes and hosts is None and now.rescale is None and now.waiting is None:
            return None
        refuse_halted(self.snapshot.halt)
        before = self._loop.runner.moved
        rows = self.request_rescale(workers, strategy, hosts, left_out)

        def met(state: states.State) -> bool | None:
            refuse_in(state)
            facts = state.facts
            if not isinstance(state, SETTLED) or facts.requested.rescale is not None or is_moving(facts):
                return None
            if facts.rescale_error is not None:
                raise UnavailableError(
                    f"the rescale was abandoned: {facts.rescale_error}", "the old layout stays in use"
                )
            offered = facts.offered if hosts is None else hosts
            if not serves(facts.layout, {}, workers, offered, excluded=left_out):
                raise UnavailableError(f"another rescale has replaced this one: workers={len(facts.layout.workers)}")
            return True

        asked = events.RescaleAsked(workers=workers, strategy=strategy, hosts=hosts, partitions=rows, excluded=left_out)
        self._result(lambda: self._loop.submit(asked, met), timeout_s)
        moved = self._loop.runner.moved
        return None if moved is before else moved

    def cancel_rescale(self, timeout_s: float | None = None) -> None:
        """Cancel a rescale that has not reached its switch; return when nothing of it is left.

        Keys that have moved already move back. If a rescale waits for another, the waiting one is cancelled.
        **Errors** `ConfigError` if none is under way; `UnavailableError` if it is too late.
        """
        begun: list[bool] = []

        def met(state: states.State) -> bool | None:
            refuse_in(state)
            facts = state.facts
            if isinstance(state, states.Rescaling):
                raise UnavailableError("the rescale can no longer be cancelled", "wait for it, then rescale back")
            turned = facts.migration_plan is not None and facts.migration_plan.turned
            if facts.requested.cancel or isinstance(state, states.Cancelling) or turned:
                begun.append(True)
                return None
            if not begun:
                raise ConfigError(f"no rescale is under way: workers={len(facts.layout.workers)}")
            forgotten = (
                isinstance(state, states.Recovering) and state.awaits == "backoff" and facts.requested.rescale is None
            )
            return True if forgotten or isinstance(state, SETTLED) else None

        self._result(lambda: self._loop.submit(events.CancelAsked(), met), timeout_s)

    def request_rescale(
        self, workers: int, strategy: str = COLD, hosts: Offered | None = None, excluded: tuple[str, ...] | None = None
    ) -> Mapping[str, tuple[int, ...]]:
        """Note the request durably, with the hosts that it leaves out and the recent rows of each input partition; return these.

        Before `start`, the service begins with the rescale.

        A start or a rollback may claim a new epoch at the same time. So the epoch is read inside the transaction: an earlier
        one of this service must not refuse the request.
        """

        rows = self._loop.runner.partitions

        def noted(ledger: ledgers.Ledger) -> ledgers.Ledger:
            if epoch := self._loop.runner.epoch:  # 0 before the first claim
                ledgers.refuse_older(ledger, epoch)
            return ledgers.request_rescale(ledger, workers, strategy, hosts, rows, excluded)

        self.built.parts.control.change(None, noted)
        if self._thread is None:
            self._loop.begin_with_rescale(workers, strategy)
        return rows

    def layout(self) -> Layout:
        """Return the layout in use; while keys move, it has the workers of both sides."""
        return self.snapshot.layout or self.built.facts.layout

    @property
    def workers_to_be(self) -> int:
        """Return the number of workers after the present moves."""
        return len(self._layout_to_be().workers)

    def _layout_to_be(self) -> Layout:
        """Return the layout that is in use after the present moves."""
        migration_plan = (
            self.snapshot.migration_plan if self.snapshot.layout is not None else self.built.facts.migration_plan
        )
        return self.layout() if migration_plan is None else migration_plan.new

    def layout_status(self) -> dict[str, Any]:
        """Return the layout as JSON values."""
        inputs = self.built.parts.inputs
        partitions = {name: inputs.partitions(name) for name in sorted(self._tables)}
        return layout_as_json(self.layout(), partitions, self._state_bytes(), self.snapshot.migration_plan)
