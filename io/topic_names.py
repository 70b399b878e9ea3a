"""Names of the topics that a pipeline needs for itself, after the pipeline's name; those of views have the views' names."""

STEPS = "steps"
PROGRESS = "progress"
