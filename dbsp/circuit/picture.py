"""Draws a circuit as an SVG picture, which notebooks show without any library: tables left, views right.

A node's column is the length of the longest way to it from a table, so that every arrow points to the right.
"""

from __future__ import annotations

import html
from collections import Counter

from dbsp.algebra.table import Table
from dbsp.circuit.graph import CircuitGraph, nodes_of

LABEL_LENGTH_MAX = 26
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 190, 30, 40, 14, 10
FILLS = {"table": "#fff8e1", "node": "#e3f2fd", "view": "#e8f5e9"}
_ARROW = (
    '<defs><marker id="dbsp-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="#455a64"/></marker></defs>'
)


def picture(circuit: CircuitGraph) -> str:
    """Return the circuit as an SVG element; the whole text of a node is shown when the pointer rests on it."""
    nodes = nodes_of(circuit)
    depths: dict[int, int] = {}
    for node in nodes:
        depths[id(node)] = max((depths[id(child)] + 1 for child in node.children()), default=0)
    last = max(depths.values()) + 1
    rows: Counter[int] = Counter()
    places: dict[int | str, tuple[int, int]] = {}
    for node in nodes:
        places[id(node)] = (depths[id(node)], rows[depths[id(node)]])
        rows[depths[id(node)]] += 1
    for number, (name, _) in enumerate(circuit.views):
        places[name] = (last, number)
    rows[last] = len(circuit.views)
    boxes = [
        _box(places[id(node)], f"table {node.name}" if isinstance(node, Table) else str(node), _kind(node))
        for node in nodes
    ]
    boxes += [_box(places[name], name, "view") for name, _ in circuit.views]
    arrows = [_arrow(places[id(child)], places[id(node)]) for node in nodes for child in node.children()]
    arrows += [_arrow(places[id(node)], places[name]) for name, node in circuit.views]
    width = (last + 1) * (WIDTH + GAP_X) - GAP_X + 2 * MARGIN
    height = max(rows.values()) * (HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "".join((head, ' font-family="sans-serif" font-size="12">', _ARROW, *arrows, *boxes, "</svg>"))


def _kind(node: object) -> str:
    return "table" if isinstance(node, Table) else "node"


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return MARGIN + place[0] * (WIDTH + GAP_X), MARGIN + place[1] * (HEIGHT + GAP_Y)


def _box(place: tuple[int, int], text: str, kind: str) -> str:
    """Return a node as a box with its shortened text; its title is the whole text."""
    x, y = _corner(place)
    short = text if len(text) <= LABEL_LENGTH_MAX else text[: LABEL_LENGTH_MAX - 1] + "…"
    return (
        f'<g><title>{html.escape(text)}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5"'
        f' fill="{FILLS[kind]}" stroke="#455a64"/><text x="{x + WIDTH // 2}" y="{y + HEIGHT // 2 + 4}" fill="#263238"'
        f' text-anchor="middle">{html.escape(short)}</text></g>'
    )


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return a curve from the right side of one box to the left side of another."""
    (x1, y1), (x2, y2) = _corner(start), _corner(end)
    x1, y1, y2 = x1 + WIDTH, y1 + HEIGHT // 2, y2 + HEIGHT // 2
    return (
        f'<path d="M{x1} {y1} C {x1 + GAP_X} {y1} {x2 - GAP_X} {y2} {x2} {y2}" fill="none" stroke="#455a64"'
        ' marker-end="url(#dbsp-arrow)"/>'
    )
