"""Operators: frozen values that turn the changes of their inputs into the change of their output; one file each."""
