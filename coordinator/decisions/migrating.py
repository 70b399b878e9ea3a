"""What the coordinator decides about a migration: state that moves key by key in the steps, by `icadd` or `redistribute`.

It begins as a warm-up that has nothing to copy, for the sake of its checkpoints; at its switch the state is sliced into a version
of the layout that has the workers of both, where all shards are still their owners'. From then on every step's record holds a
command, and the report of one says that the last key has moved. Then the new layout is in use; its first checkpoint is taken
beside the steps, and when that is published the workers who left are taken away.

Invariants kept here: a course is logged before its first step, and a version in its layout is published, so a crash at any later
point finds both layouts (2, 3); a step runs in the layouts of its own record, whatever came later (9); no other rescale begins
before the last worker who left is gone (12).

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
    """The migration to a layout from the next step on that is not logged yet."""
    first = facts.next_step if ahead is None else ahead.step + 1
    return Course.towards(new, facts.layout, strategy=strategy, first=first, budget=facts.keys_per_step)


def is_open(facts: states.Facts) -> bool:
    """Whether a migration is under way, or what it has left behind is still there: another rescale waits."""
    return facts.course is not None or facts.version_layout != facts.layout.version or bool(leavers(facts))


def leavers(facts: states.Facts) -> tuple[int, ...]:
    """The workers that a migration has left without a key and that the opened version does without.

    One that could not be reached when its database was to be deleted (`forming`) is not waited for.
    """
    if facts.version_layout != facts.layout.version or facts.warming is not None:
        return ()
    return tuple(sorted(facts.members - facts.forming - set(facts.layout.workers)))


def step_commands(facts: states.Facts) -> tuple[str, ...]:
    """What the record of the next step says of a migration."""
    return () if facts.course is None else (to_text(facts.course.command(facts.next_step)),)


def between_steps(facts: states.Facts, ahead: StepRecord | None) -> Answer | states.Facts:
    """What a request to cancel does to a migration, or the facts to go on with; a step with its first command comes before it."""
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
    """Write the layout, and the course whose steps run in it, before they are used."""
    members, forming = tuple(sorted(facts.members)), tuple(sorted(facts.forming))
    return commands.LogLayout(layout=layout, members=members, forming=forming, course=course)


def noted(facts: states.Facts, course: Course) -> states.Facts:
    """The facts with a course and its layouts."""
    layouts = {**facts.layouts, course.version: course.layout, course.new.version: course.new}
    return replace(facts, layouts=layouts, courses={**facts.courses, course.version: course})


def entered(facts: states.Facts, course: Course) -> states.Facts:
    """Steps run in the layout of a course that is noted, from now on."""
    return replace(facts, layout=course.layout, course=course)


def of_record(facts: states.Facts, record: StepRecord) -> states.Facts:
    """The facts in which a step is run: those of its record, where that is of a migration that had turned round since."""
    course = facts.courses.get(record.layout_version)
    return facts if course is None or course == facts.course else entered(facts, course)


def ended(facts: states.Facts) -> states.Facts:
    """All keys have moved: the new layout is in use, and a checkpoint in it is wanted."""
    if facts.course is None:
        return facts
    requested = replace(facts.requested, checkpoint=True)
    return replace(facts, layout=facts.course.new, course=None, requested=requested)
