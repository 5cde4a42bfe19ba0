"""A log → a prepared folder, its rows read and its pairs made different by several processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from .. import _native
from .._interactions import chosen_by
from ..policy import KEYS, PREPARE, _prepare, check, divided, own_folder, wanted
from ._log import digits, read
from ._shared import shared

_PART = "part"
_FOR_ROWS = ("min_rating", "rows")


def _distinct(
    rows: pa.Table, *, log: str, told: str, ids: dict[str, pa.DataType], parts: int
) -> pa.Table:
    """A row for each different pair, and the part that its user is in."""
    try:
        pairs = pa.table(_native.Interactions.of_stream(rows, []).distinct(told))
    except ValueError as error:
        raise ValueError(f"{log}: in {rows.num_rows} rows of it: {error}") from None
    # A block of texts may happen to hold integers only.
    for at, (name, dtype) in enumerate(ids.items()):
        pairs = pairs.set_column(at, name, pairs.column(name).cast(dtype))
    part = digits(pairs.column("user").combine_chunks()) % np.uint64(parts)
    return pairs.append_column(_PART, pa.array(part.astype(np.int64)))


def prepare(
    log: str,
    out: str | Path,
    *,
    user: str,
    item: str,
    time: str | None = None,
    weight: str | None = None,
    parts: int | None = None,
    settings: dict[str, Any] | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Prepares a log that is longer than a machine can read into the folder ``out``.

    Processes of Ray read its files, check and filter rows, bring the rows of a user together and keep
    each pair of a user and an item once. What is left is written to ``out`` + ``.pairs``, prepared here
    as by :func:`fast_slate.prepare`, and deleted. So sessions are those of one machine, and a machine
    has to hold the different pairs of the users that are kept, as training does.

    Parameters
    ----------
    log
        A Parquet file, or a folder of them, perhaps partitioned as Hive does it.
    out
        A folder on a disk that all nodes have under this path: each writes its pairs beside it.
    user, item, time, weight
        Names of columns.
    parts
        Parts of the users; a process holds the pairs of one. By default four for each CPU there is.
    settings, arguments
        The parameters of :func:`fast_slate.prepare`. Rows of known sets are not chosen by themselves: say
        ``prepare.rows``. ``prepare.skip_bad_rows`` is refused: no process sees all rows.
    """
    given = [(name, key, arguments.pop(name, None)) for name, key in KEYS.items()]
    keys, more = divided(settings, given)
    preset = arguments.get("preset", "default")
    _native.resolve(preset, [item for item in keys.items() if item[0] not in KEYS.values()])
    if "skip_bad_rows" in more:
        raise ValueError(
            f"settings['{PREPARE}skip_bad_rows']: expected rows that can all be read, because each "
            "process would skip as many of its own; mend the rows, or use `slate prepare`"
        )
    files = {key: arguments.get(key) for key in ("item_embeddings", "user_features")}
    told = {key: value for key, value in arguments.items() if key not in files}
    first = {"user": user, "item": item, "time": time, "weight": weight}
    check({**first, **told, "out": out}, more, **files)
    names = [user, item, *filter(None, (time, weight, chosen_by(more.get("rows"))))]
    schema = read(log, names).schema
    types: dict[str, pa.DataType] = {"user": schema.field(user).type, "item": schema.field(item).type}
    whole = {name: of for name, of in types.items() if pa.types.is_integer(of) and of != pa.uint64()}
    ids = {name: pa.int64() if name in whole else pa.string() for name in types}
    resources: Any = ray.cluster_resources()  # type: ignore[no-untyped-call]
    parts = parts or 4 * max(1, int(resources.get("CPU", 1)))

    def distinct(columns: dict[str, str | None], **filters: Any) -> Callable[[pa.Table], pa.Table]:
        return partial(_distinct, log=log, told=wanted(columns, filters), ids=ids, parts=parts)

    split = {key: more[key] for key in ("split", "test_after") if key in more}
    of_rows = {key: more[key] for key in _FOR_ROWS if key in more}
    of_users = {key: more[key] for key in ("min_user_interactions",) if key in more}
    then: dict[str, Any] = {"user": "user", "item": "item", "time": time and "time", "weight": None}
    if (Path(out) / "prepare.toml").exists() and not arguments.get("overwrite"):
        raise ValueError(f"out: {out} is prepared already; give overwrite=True, or another folder")
    pairs = Path(f"{out}.pairs").absolute()
    own_folder(pairs)
    try:
        rows = ray.data.read_parquet(log).select_columns(names)
        blocks = rows.map_batches(
            distinct(first, **split, **of_rows, min_user_interactions=1),
            batch_format="pyarrow",
            batch_size=None,
            zero_copy_batch=True,
        )
        users = blocks.groupby(_PART, num_partitions=parts).map_groups(
            distinct(then, **split, **of_users), batch_format="pyarrow"
        )
        # A node that made the folder on a disk of its own would keep its users there.
        with shared(pairs, out):
            users.drop_columns([_PART]).write_parquet(str(pairs), try_create_dir=False)
        rest = {key: value for key, value in more.items() if key not in _FOR_ROWS}
        log_of_pairs = f"{pairs}/*.parquet"
        # Columns of the pairs have names of their own; the table of users has the log's.
        return _prepare(log_of_pairs, then, Path(out), keys, rest, feature_id=user, **arguments)
    except ray.exceptions.RayTaskError as error:
        # The traceback of the other process says it on a line of its own.
        said = [line for line in str(error).splitlines() if line.startswith("ValueError: ")]
        raise (ValueError(said[-1].removeprefix("ValueError: ")) if said else error) from None
    finally:
        shutil.rmtree(pairs, ignore_errors=True)
