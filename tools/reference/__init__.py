"""Reference pages of the documentation site, made from code each time the site is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tools.reference import cli, dsl, errors, service, settings, sql_functions

MAKERS: dict[str, tuple[str, str, Callable[[], str]]] = {
    "dsl": ("DSL", "every public function, method and class of `dbsp`, from its docstring", dsl.page),
    "sql-functions": ("SQL functions", "every function with its argument types", sql_functions.page),
    "settings": ("Settings", "every setting with its type, default and meaning", settings.page),
    "cli": ("Command line", "every command with its options", cli.page),
    "http": ("HTTP", "every address, from the OpenAPI description", service.http_page),
    "metrics": ("Metrics", "every metric of a running service", service.metrics_page),
    "errors": ("Errors", "every error with its exit code and hint", errors.page),
}
"""Title, content and maker of each page, by its name."""


def pages() -> Iterator[tuple[str, str]]:
    """Yield each reference page as its place in the site and its text; the index first."""
    lines = [
        "# Reference",
        "",
        "These pages are made from the code of this version.",
        "",
        "| page | content |",
        "| --- | --- |",
    ]
    lines += [f"| [{title}]({name}.md) | {content} |" for name, (title, content, _) in MAKERS.items()]
    lines += [
        "| [Streams](../streams.md) | the methods of a stream by family, and the SQL of each |",
        "| [Expressions](../expressions.md) | the methods of a column |",
        "| [Values](../values.md) | what a column takes |",
        "| [SQL](../sql.md) | the dialect, and where it differs from DuckDB |",
        "| [PostgreSQL's protocol](../postgres.md) | clients, types, differences |",
        "| [Glossary](../glossary.md) | every term |",
    ]
    yield "reference/index.md", "\n".join(lines) + "\n"
    for name, (title, _, make) in MAKERS.items():
        yield f"reference/{name}.md", f"# {title}\n\n{make()}"
