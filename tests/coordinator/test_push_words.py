"""What `coordinator push` says of the rows that were taken."""

from dbsp.coordinator.cli import durable


def test_the_last_offset_that_is_named_is_one_that_was_taken() -> None:
    assert durable("orders", 0, 4) == "rows 0 to 3 of orders are durable"


def test_of_an_empty_push_no_offsets_are_named() -> None:
    assert durable("orders", 7, 7) == "no rows were given; nothing was added to orders"
