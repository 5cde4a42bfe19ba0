"""Whatever holds interactions → what the library reads."""

from __future__ import annotations

import json
import operator
import os
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from . import _native

MANIFEST = "prepare.toml"


def is_prepared(of: Any) -> bool:
    """True for the path of a folder that `slate prepare` or `fast_slate.prepare` made."""
    return isinstance(of, str | os.PathLike) and (Path(of) / MANIFEST).exists()


def chosen_by(rows: Any) -> str | None:
    """The column that ``prepare.rows`` names."""
    column, equals, _ = str(rows).partition("=")
    return column if column and equals else None


def read(
    of: Any, names: dict[str, str | None], rows: Any = None
) -> tuple[Any, dict[str, str | None]]:
    """What `_native.prepare` takes, and the columns by argument; ``rows`` is ``prepare.rows``."""
    if isinstance(of, str | os.PathLike):
        path = Path(of)
        # A pattern such as 'log/*.csv' is no file, and the library says what is wrong with it.
        if not path.exists() and not any(sign in str(of) for sign in "*?["):
            raise FileNotFoundError(f"interactions: {path} is not there")
        return str(of), names
    if hasattr(of, "__arrow_c_stream__"):
        asked = {**names, "settings['prepare.rows']": chosen_by(rows)}
        given = {argument: name for argument, name in asked.items() if name is not None}
        # Without the names of users and items the library looks for those of known data sets.
        wanted = list(given.values()) if {"user", "item"} <= given.keys() else []
        table = _native.Interactions.of_stream(_narrow(of, wanted), wanted)
        for argument, name in given.items():
            if name not in table.column_names:
                columns = ", ".join(names_of(of))
                raise KeyError(f"{argument}: no column `{name}`; the columns are {columns}")
        return table, names
    if hasattr(of, "tocsr"):
        return _pairs(of, names)
    raise ValueError(
        "interactions: expected a table with __arrow_c_stream__ (Polars, pandas 2.2 or later with "
        f"pyarrow, pyarrow, DuckDB), a scipy sparse matrix or a path, found {type(of).__name__}"
    )


def _narrow(table: Any, wanted: list[str]) -> Any:
    """A pandas frame without columns that nobody asks for: Arrow cannot hold all that is in them."""
    if not (wanted and hasattr(table, "loc") and hasattr(table, "columns")):
        return table
    asked = {*wanted, *_native.KNOWN_COLUMNS}
    kept = [str(name) in asked for name in table.columns]
    return table.loc[:, kept] if any(kept) else table


def names_of(table: Any) -> list[str]:
    """The names of a table's columns; of some libraries ``columns`` are the cells."""
    for named in (table, getattr(table, "schema", None)):
        for attribute in ("column_names", "names"):
            if isinstance(names := getattr(named, attribute, None), list | tuple):
                return [str(name) for name in names]
    return [str(name) for name in table.columns]


def _pairs(matrix: Any, names: dict[str, str | None]) -> tuple[Any, dict[str, str | None]]:
    """The stored numbers of a matrix of users and items, whose ids are the rows and columns."""
    for argument, name in names.items():
        if name is not None:
            raise ValueError(f"{argument}: a sparse matrix has no columns with names")
    matrix = matrix.tocsr()
    if not np.all(matrix.data):
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    counts = np.diff(matrix.indptr)
    users = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), counts)
    items = np.ascontiguousarray(matrix.indices, dtype=np.int64)
    weights = matrix.data
    if weights.dtype != np.float32:  # a threshold is as precise as they are
        weights = np.ascontiguousarray(weights, dtype=np.float64)
    columns = {"user": "user", "item": "item", "time": None, "weight": "weight"}
    return _native.Interactions.of_pairs(users, items, weights), columns


def plain(of: Any, argument: str) -> Any:
    """A value as JSON has it, numbers of numpy, paths and days too."""

    def other(one: Any) -> Any:
        if isinstance(one, os.PathLike):
            return os.fspath(one)
        if isinstance(one, date):
            return one.isoformat()
        if isinstance(one, np.bool_):
            return bool(one)
        if hasattr(one, "__index__"):
            return operator.index(one)
        if hasattr(one, "__float__"):
            return float(one)
        raise TypeError

    try:
        return json.loads(json.dumps(of, default=other, allow_nan=False))
    except (TypeError, ValueError):
        raise ValueError(
            f"{argument}: expected a number, a text, a truth, a path, a day or a list of them, found "
            f"{of!r}"
        ) from None


def ids(of: Any, argument: str) -> list[str]:
    """Ids, integers or text, as the library has them."""
    if hasattr(of, "tolist"):
        of = of.tolist()
    elif hasattr(of, "to_list"):
        of = of.to_list()
    elif hasattr(of, "to_pylist"):
        of = of.to_pylist()
    if isinstance(of, str | int) or not hasattr(of, "__iter__"):
        of = [of]
    found = []
    for one in of:
        if isinstance(one, bool) or not isinstance(one, str | int | np.integer):
            raise ValueError(f"{argument}: expected integers or texts, found {one!r}")
        found.append(str(one))
    return found


def item_embeddings(of: Any, folder: Path) -> tuple[str, str | None]:
    """The files of embeddings in memory: the numbers, and the ids where they are apart."""
    if isinstance(of, str | os.PathLike):
        return str(of), None
    if hasattr(of, "__arrow_c_stream__"):
        path = folder / "item_embeddings.parquet"
        _native.write_table(of, str(path), "item_embeddings", [])
        return str(path), None
    try:
        names, numbers = of
    except (TypeError, ValueError) as error:
        raise ValueError(
            "item_embeddings: expected a pair (ids, array [P, L]), a table with a column of ids, or "
            f"a path, found {type(of).__name__}"
        ) from error
    names = ids(names, "item_embeddings")
    for name in names:
        if "\n" in name or "\r" in name:  # the library reads one id a line
            raise ValueError(
                f"item_embeddings: expected ids without line breaks, found {name!r}; give a table with "
                "a column item_id"
            )
    try:
        numbers = np.asarray(numbers, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError("item_embeddings: expected an array of numbers [P, L]") from error
    if numbers.ndim != 2 or len(names) != len(numbers):
        raise ValueError(
            f"item_embeddings: expected an array [{len(names)}, L], a row for each id, found the "
            f"shape {numbers.shape}"
        )
    np.save(folder / "item_embeddings.npy", numbers)
    (folder / "item_embeddings.txt").write_text("\n".join(names), encoding="utf-8")
    return str(folder / "item_embeddings.npy"), str(folder / "item_embeddings.txt")


def user_features(of: Any, folder: Path, columns: list[str]) -> str:
    """The file of a table of users in memory, with these columns, or all if there is none."""
    if isinstance(of, str | os.PathLike):
        return str(of)
    if not hasattr(of, "__arrow_c_stream__"):
        raise ValueError(
            f"user_features: expected a table with __arrow_c_stream__ or a path, found "
            f"{type(of).__name__}"
        )
    path = folder / "user_features.parquet"
    _native.write_table(of, str(path), "user_features", columns)
    return str(path)
