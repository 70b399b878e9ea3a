"""Group-by: its parts, one per kind of aggregate, and the forms in which rows are sent to them."""
