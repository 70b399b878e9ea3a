"""The decisions about a migration: state that moves key by key in the steps, by `icadd` or `redistribute`.

A migration is prepared as a warm-up that copies nothing, for the sake of its checkpoints. At the switch the state is
sliced into a version of a layout that has the workers of both sides. In this layout all shards still belong to their
old owners. From then on the record of every step contains a migration command, until the report of a step says that the
last key has moved. Then the new layout is in use. Its first checkpoint is taken while steps run; when that is
published, the workers that left are removed.

Invariants kept here:

- A migration plan (`Course`) is logged before its first step, and a version in its layout is published. So a crash at
  any later
  point finds both layouts (2, 3).
- A step runs in the layouts of its own record, whatever was logged later (9).
- No other rescale begins before the last worker that left is removed (12).

Source: docs/concepts/rescale.md; design record 0015.
"""

from __future__ import annotations

from dataclasses import replace

from dbsp.coordinator.decisions import commands, states
from dbsp.distribute.commands import to_text
from dbsp.distribute.course import Course
from dbsp.layout import Layout
from dbsp.logs import StepRecord

Answer = tuple[states.State, tuple[commands.Command, ...]]

CANCELLED = "it was cancelled"


def course_to(facts: states.Facts, new: Layout, strategy: str, ahead: StepRecord | None) -> Course:
    """Return the plan of a migration to a layout, beginning with the first step that is not logged yet."""
    first = facts.next_step if ahead is None else ahead.step + 1
    return Course.towards(new, facts.layout, strategy=strategy, first=first, budget=facts.keys_per_step)


def is_open(facts: states.Facts) -> bool:
    """Return True while a migration is under way or its clean-up is not finished; another rescale waits meanwhile."""
    return facts.course is not None or facts.version_layout != facts.layout.version or bool(leavers(facts))


def leavers(facts: states.Facts) -> tuple[int, ...]:
    """Return the workers that own no key after a migration and that the opened version does not need.

    Unreachable workers whose databases should have been deleted (`forming`) are left out, so that nothing waits for
    them.
    """
    if facts.version_layout != facts.layout.version or facts.warming is not None:
        return ()
    return tuple(sorted(facts.members - facts.forming - set(facts.layout.workers)))


def step_commands(facts: states.Facts) -> tuple[str, ...]:
    """Return the migration commands for the record of the next step: one during a migration, else none."""
    return () if facts.course is None else (to_text(facts.course.command(facts.next_step)),)


def between_steps(facts: states.Facts, ahead: StepRecord | None) -> Answer | states.Facts:
    """Serve a request to cancel a migration; return the facts to go on with if there is nothing to do now.

    A plan whose first step has not run yet cannot turn back: the step with its first command runs before the
    cancellation.
    """
    course, requested = facts.course, facts.requested
    if not requested.cancel:
        return facts
    if requested.rescale is not None:
        return states.Cancelling(facts=facts, awaits="forgotten", ahead=ahead), (commands.ForgetRescale(),)
    if course is None or (course.turned and facts.next_step == course.first):
        return replace(facts, requested=replace(requested, cancel=False))
    if facts.next_step == course.first:
        return facts
    back = course.turned_round(facts.next_step)
    facts = entered(noted(facts, back), back)
    facts = replace(facts, rescale_error=CANCELLED, requested=replace(requested, cancel=False))
    return states.Cancelling(facts=facts, awaits="logged", ahead=ahead), (log(facts, back.layout, back),)


def log(facts: states.Facts, layout: Layout, course: Course | None) -> commands.LogLayout:
    """Return the command that logs a layout and the migration plan whose steps run in it, before their use."""
    members, forming = tuple(sorted(facts.members)), tuple(sorted(facts.forming))
    return commands.LogLayout(layout=layout, members=members, forming=forming, course=course)


def noted(facts: states.Facts, course: Course) -> states.Facts:
    """Return the facts with a migration plan and its two layouts added."""
    layouts = {**facts.layouts, course.version: course.layout, course.new.version: course.new}
    return replace(facts, layouts=layouts, courses={**facts.courses, course.version: course})


def entered(facts: states.Facts, course: Course) -> states.Facts:
    """Return the facts where steps run in the layout of a noted migration plan from now on."""
    return replace(facts, layout=course.layout, course=course)


def of_record(facts: states.Facts, record: StepRecord) -> states.Facts:
    """Return the facts in which a record's step runs.

    A record of a migration that has turned back since its logging runs by the plan it was logged under.
    """
    course = facts.courses.get(record.layout_version)
    return facts if course is None or course == facts.course else entered(facts, course)


def ended(facts: states.Facts) -> states.Facts:
    """Return the facts after all keys have moved: the new layout is in use, and a checkpoint in it is requested."""
    if facts.course is None:
        return facts
    requested = replace(facts.requested, checkpoint=True)
    return replace(facts, layout=facts.course.new, course=None, requested=requested)
