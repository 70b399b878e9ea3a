"""The logical operators: one kind of node, one file; each says what it means, what it needs and how it is planned."""
