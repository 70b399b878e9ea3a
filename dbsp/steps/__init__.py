"""Run a step on one worker: its segments, the exchange of rows between workers, its time, and its error policy."""
