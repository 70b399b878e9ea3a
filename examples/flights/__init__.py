"""All flights of New York 2013, as the days would bring them."""
