"""The views under test."""

from __future__ import annotations

from leman._format.view_definitions import ViewColumn, ViewFunction, ViewQuery
from tests.integration.views.histories.functions import scored
from tests.integration.views.histories.oracle import Row, Shape


def _k(row: Row) -> int:
    return row["k"] or 0


def _doubled(row: Row) -> int | None:
    return None if row["x"] is None else row["x"] * 2 + (row["y"] or 0)


def _score(row: Row) -> int | None:
    return scored(row["id"] or 0, row["x"], row["y"] or 0)


ID = ("id", lambda row: row["id"])

SHAPES = [
    Shape("sql", "k >= 5", lambda r: _k(r) >= 5, {"id": ID, "twice": ("x * 2 + y", _doubled)}, frozenset("kxy")),
    Shape(
        "shuffled",
        "k < 7 AND id >= 3",
        lambda r: _k(r) < 7 and (r["id"] or 0) >= 3,
        {"id": ID, "k": ("k", lambda r: r["k"])},
        frozenset("kxy"),
        given=("id", "x", "y"),
        function=("score", _score),
        shuffle=True,
    ),
    Shape(
        "limited",
        "k != 2",
        lambda r: _k(r) != 2,
        {"id": ID, "x": ("x", lambda r: r["x"])},
        frozenset("kx"),
        limit=20,
        offset=4,
    ),
]


def query(shape: Shape, database: str, table: str) -> ViewQuery:
    """What is asked of the catalog."""
    functions = () if shape.function is None else (ViewFunction("score", "score", "1", shape.given),)
    columns = tuple(
        ViewColumn(name, expression, name if expression == name else "")
        for name, (expression, _) in shape.columns.items()
    )
    return ViewQuery(
        database,
        table,
        columns,
        functions,
        shape.where,
        shape.shuffle,
        42 if shape.shuffle else 0,
        shape.limit,
        shape.offset,
    )
