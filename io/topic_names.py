"""Names of a pipeline's own topics: the step log, the progress, the heartbeats, and a topic with the name of each view."""

STEPS = "steps"
PROGRESS = "progress"
HEARTBEATS = "coordinator.heartbeats"


def own_topic(pipeline: str, name: str) -> str:
    """Return the full name of a pipeline's own topic.

    >>> own_topic("shop", STEPS)
    'shop.steps'
    """
    return f"{pipeline}.{name}"
