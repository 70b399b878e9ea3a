"""Running one step on one worker: its segments, what moves between workers, its time, and whether failed rows end it."""
