"""The named methods of an expression, by what they work on."""
