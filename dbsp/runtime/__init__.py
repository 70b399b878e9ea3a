"""Runtimes: where the workers' tasks run, in one process or on Spark, and the run of a notebook (`dbsp.open`)."""
