"""What `coordinator push` says of the rows that were taken."""

from dbsp.coordinator.cli import durable


def test_the_last_offset_that_is_named_is_one_that_was_taken() -> None:
    assert durable("orders", 0, 4, repeated=False) == "rows 0 to 3 of orders are durable"


def test_of_an_empty_push_no_offsets_are_named() -> None:
    assert durable("orders", 7, 7, repeated=False) == "no rows were given; nothing was added to orders"


def test_a_repeated_push_is_not_called_an_empty_one() -> None:
    known = durable("orders", 0, 4, repeated=True)
    assert known == "rows 0 to 3 of orders are durable: they were pushed before, nothing was added"
    assert durable("orders", 7, 7, repeated=True) == "pushed before, nothing was added to orders"
