"""Names of a pipeline's own topics: its step log, progress and heartbeats, and those of views, which have the views' names."""

STEPS = "steps"
PROGRESS = "progress"
HEARTBEATS = "coordinator.heartbeats"


def own_topic(pipeline: str, name: str) -> str:
    """Return the full name of a pipeline's own topic.

    >>> own_topic("shop", STEPS)
    'shop.steps'
    """
    return f"{pipeline}.{name}"
