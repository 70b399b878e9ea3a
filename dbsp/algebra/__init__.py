"""The logical operators, one kind of node per module: its meaning, the columns that it reads, and its plan."""
