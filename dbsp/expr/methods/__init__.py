"""The named methods of an expression, grouped by the values they work on."""
