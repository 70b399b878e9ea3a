"""Operators on ordered rows: top-k, and window functions, which compute a value of each row from the rows around it."""
