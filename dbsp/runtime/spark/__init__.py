"""Run steps as Spark jobs: the session, the step job, small jobs for opening and committing, and errors of tasks."""
