"""Run the workers' tasks: in one process or on Spark, and for a notebook (`dbsp.open`)."""
