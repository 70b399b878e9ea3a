"""Steps as Spark jobs: the session, the step job, small jobs for opening and committing, errors that come back whole."""
