"""The decisions about a migration, in which steps move the state key by key (`icadd` or `redistribute`).

A migration is prepared as a warm-up that copies nothing, for the sake of its checkpoints. At the switch the state is
sliced into a version of a layout that has the workers of both sides. In this layout all shards still belong to their
old owners. From then on the record of every step contains a migration command, until the report of a step says that the
last key has moved. Then the new layout is in use. Its first checkpoint is taken while steps run; when that is
published, the workers that left are removed.

Invariants kept here:

- A migration plan (`MigrationPlan`) is logged before its first step, and a version in its layout is published. So a crash
  at any later point finds both layouts (invariants 2, 3).
- A step runs in the layouts of its own record, whatever was logged later (invariant 9).
- No other rescale begins before the last worker that left is removed (invariant 12).

Source: docs/concepts/rescale.md; design record 0015.
"""

from __future__ import annotations

from dataclasses import replace

from dbsp.coordinator.decisions import commands, states
from dbsp.distribute.commands import to_text
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.layout import Layout
from dbsp.logs import StepRecord

Answer = tuple[states.State, tuple[commands.Command, ...]]

CANCELLED = "it was cancelled"


def course_to(facts: states.Facts, new: Layout, strategy: str, ahead: StepRecord | None) -> MigrationPlan:
    """Return the plan of a migration to a layout, beginning with the first step that is not logged yet."""
    first = facts.next_step if ahead is None else ahead.step + 1
    return MigrationPlan.towards(new, facts.layout, strategy=strategy, first=first, budget=facts.keys_per_step)


def is_open(facts: states.Facts) -> bool:
    """Return True while a migration is under way or its clean-up is not finished; another rescale waits meanwhile."""
    return facts.migration_plan is not None or facts.version_layout != facts.layout.version or bool(leavers(facts))


def leavers(facts: states.Facts) -> tuple[int, ...]:
    """Return the workers that own no key after a migration and are not needed by the opened version.

    Unreachable workers whose databases should have been deleted (`forming`) are left out, so that nothing waits for
    them.
    """
    if facts.version_layout != facts.layout.version or facts.warming is not None:
        return ()
    return tuple(sorted(facts.members - facts.forming - set(facts.layout.workers)))


def step_commands(facts: states.Facts) -> tuple[str, ...]:
    """Return the migration commands for the record of the next step: one during a migration, else none."""
    return () if facts.migration_plan is None else (to_text(facts.migration_plan.command(facts.next_step)),)


def between_steps(facts: states.Facts, ahead: StepRecord | None) -> Answer | states.Facts:
    """Serve a request to cancel a migration; return the facts to go on with if there is nothing to do now.

    A plan whose first step has not run yet cannot turn back: the step with its first command runs before the
    cancellation.
    """
    migration_plan, requested = facts.migration_plan, facts.requested
    if not requested.cancel:
        return facts
    if requested.rescale is not None:
        return states.Cancelling(facts=facts, awaits="forgotten", ahead=ahead), (commands.ForgetRescale(),)
    if migration_plan is None or (migration_plan.turned and facts.next_step == migration_plan.first):
        return replace(facts, requested=replace(requested, cancel=False))
    if facts.next_step == migration_plan.first:
        return facts
    back = migration_plan.turned_round(facts.next_step)
    facts = entered(noted(facts, back), back)
    facts = replace(facts, rescale_error=CANCELLED, requested=replace(requested, cancel=False))
    return states.Cancelling(facts=facts, awaits="logged", ahead=ahead), (log(facts, back.layout, back),)


def log(facts: states.Facts, layout: Layout, migration_plan: MigrationPlan | None) -> commands.LogLayout:
    """Return the command that logs a layout and the migration plan whose steps run in it, before their use."""
    members, forming = tuple(sorted(facts.members)), tuple(sorted(facts.forming))
    return commands.LogLayout(layout=layout, members=members, forming=forming, migration_plan=migration_plan)


def noted(facts: states.Facts, migration_plan: MigrationPlan) -> states.Facts:
    """Return the facts with a migration plan and its two layouts added."""
    layouts = {
        **facts.layouts,
        migration_plan.version: migration_plan.layout,
        migration_plan.new.version: migration_plan.new,
    }
    return replace(
        facts, layouts=layouts, migration_plans={**facts.migration_plans, migration_plan.version: migration_plan}
    )


def entered(facts: states.Facts, migration_plan: MigrationPlan) -> states.Facts:
    """Return the facts where steps run in the layout of a noted migration plan from now on."""
    return replace(facts, layout=migration_plan.layout, migration_plan=migration_plan)


def of_record(facts: states.Facts, record: StepRecord) -> states.Facts:
    """Return the facts in which a record's step runs.

    A record of a migration that has turned back since its logging runs by the plan it was logged under.
    """
    migration_plan = facts.migration_plans.get(record.layout_version)
    return facts if migration_plan is None or migration_plan == facts.migration_plan else entered(facts, migration_plan)


def ended(facts: states.Facts) -> states.Facts:
    """Return the facts after all keys have moved: the new layout is in use, and a checkpoint in it is requested."""
    if facts.migration_plan is None:
        return facts
    requested = replace(facts.requested, checkpoint=True)
    return replace(facts, layout=facts.migration_plan.new, migration_plan=None, requested=requested)
