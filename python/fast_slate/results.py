"""What comes back: tables that every library with Arrow reads, and samples for a log."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _native

_SHOWN = 20


class Table:
    """Columns of equal length.

    ``pl.DataFrame(table)``, ``pa.table(table)`` and ``pd.DataFrame.from_arrow(table)`` take it
    without a copy, by ``__arrow_c_stream__``; so does DuckDB by its name in a query. A column alone
    is a list: ``table["item_id"]``. Iterating gives a dictionary for each row.
    """

    def __init__(self, columns: _native.Table | dict[str, list[Any]]) -> None:
        if isinstance(columns, dict):
            columns = _native.Table(list(columns.items()))
        self._native = columns

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self._native.column_names

    def to_dict(self) -> dict[str, list[Any]]:
        """The cells of each column as Python's own objects."""
        return {name: self[name] for name in self.columns}

    def rows(self) -> Iterator[dict[str, Any]]:
        """A dictionary for each row."""
        columns = self.to_dict()
        return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))

    def to_polars(self) -> Any:
        """A Polars frame."""
        import polars

        return polars.DataFrame(self)

    def to_pandas(self) -> Any:
        """A pandas frame."""
        import pandas

        return pandas.DataFrame(self.to_dict())

    def keys(self) -> list[str]:
        """Names of the columns, so that ``dict(table)`` has them."""
        return self.columns

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.rows()

    def __contains__(self, column: object) -> bool:
        return column in self.columns

    def __getitem__(self, column: str) -> list[Any]:
        return self._native.cells(column)

    def __len__(self) -> int:
        return len(self._native)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._native.__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return _typed, (self.to_dict(), self._native.dtypes)

    def _head(self) -> list[list[str]]:
        first = [self._native.cells(name, _SHOWN) for name in self.columns]
        cells = [[_shown(cell) for cell in column] for column in first]
        return [self.columns, *map(list, zip(*cells, strict=True))]

    def _rest(self) -> str:
        return f"… {len(self)} rows" if len(self) > _SHOWN else ""

    def __repr__(self) -> str:
        rows = self._head()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([*lines, *filter(None, [self._rest()])])

    def _repr_html_(self) -> str:
        names, *rows = self._head()

        def line(cells: list[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        body = "".join(line(row, "td") for row in rows)
        return f"<table><thead>{line(names, 'th')}</thead><tbody>{body}</tbody></table>{self._rest()}"


def _typed(columns: dict[str, list[Any]], dtypes: list[str]) -> Table:
    return Table(_native.Table(list(columns.items()), dtypes))


def _shown(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.4f}" if isinstance(cell, float) else str(cell)


@dataclass(frozen=True)
class Sample:
    """Slates that the policy drew, and what a log of them needs.

    Row ``i`` of the arrays is for draw ``i``: the first user's draws come first.
    """

    slates: Table
    """``user``, ``draw`` (from 0), ``rank`` (from 1), ``item_id``, ``score`` and perhaps ``title``."""
    h: npt.NDArray[np.float32]
    """The query of the decision, ``[n, L]``."""
    z: npt.NDArray[np.float32]
    """The query that was searched with, h + σε, ``[n, L]``."""
    sigma: npt.NDArray[np.float32]
    """σ of each draw, ``[n]``."""


class Picture:
    """An SVG that notebooks show."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str) -> None:
        """Writes the file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)
