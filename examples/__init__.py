"""Examples: pipelines to run and to learn from."""
