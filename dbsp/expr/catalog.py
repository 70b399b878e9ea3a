"""The catalog of every function that expressions can apply, by name. A new function is an entry in its module's
`FUNCTIONS`.

A function is pickled as its name. The catalog registers that, because functions cannot know the catalog that lists
them. Code that pickles a function has made it with `dbsp.expr.build`, which loads the catalog.
"""

from __future__ import annotations

import copyreg

from dbsp.expr import (
    arithmetic,
    by_row,
    conditional,
    dates,
    digests,
    documents,
    element_functions,
    encodings,
    list_functions,
    logic,
    mathematics,
    now,
    patterns,
    sequences,
    strings,
    struct_functions,
    temporal,
    zones,
)
from dbsp.expr.cast import CAST, DECIMAL_FLOAT, FLOAT_TEXT
from dbsp.expr.expression import Function

FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        CAST,
        DECIMAL_FLOAT,
        FLOAT_TEXT,
        *arithmetic.FUNCTIONS,
        *mathematics.FUNCTIONS,
        *logic.FUNCTIONS,
        *conditional.FUNCTIONS,
        *strings.FUNCTIONS,
        *patterns.FUNCTIONS,
        *documents.FUNCTIONS,
        *digests.FUNCTIONS,
        *encodings.FUNCTIONS,
        *list_functions.FUNCTIONS,
        *element_functions.FUNCTIONS,
        *sequences.FUNCTIONS,
        *struct_functions.FUNCTIONS,
        *temporal.FUNCTIONS,
        *dates.FUNCTIONS,
        *zones.FUNCTIONS,
        *by_row.FUNCTIONS,
        *now.FUNCTIONS,
    )
}


def function_of(name: str) -> Function:
    """Return the function of this name."""
    return FUNCTIONS[name]


copyreg.pickle(Function, lambda function: (function_of, (function.name,)))
