"""Users → slates, for everybody."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import ray

from ..recommender import Recommender, _columns
from ._shards import ShardedRetriever

_UNFINISHED = "_unfinished"
"""The folder in ``out`` of slates until all are written. Readers of Parquet pass over names that begin so."""


class SlatesOf(Recommender):
    """A bundle for ``ray.data.Dataset.map_batches``: a batch of users in, their slates out.

    A batch has a column ``user_id``, ``items`` (lists of ids) or both; the slates have ``user``,
    ``rank``, ``item_id``, ``score`` and, where the bundle has titles, ``title``. Where the batch has
    both columns, ``user`` is the id.
    """

    def __call__(self, batch: Any) -> pa.Table:
        """The slates of a batch, in whichever of Ray's formats it comes."""
        if not isinstance(batch, pa.Table):
            batch = pa.table(_columns(batch))
        slates = pa.table(super().__call__(batch))
        if "user_id" in batch.column_names:
            # A bundle without histories knows no type of ids.
            users = slates.column("user").cast(batch.schema.field("user_id").type)
            slates = slates.set_column(0, "user", users)
        return slates


def recommend(
    bundle: str | os.PathLike[str],
    users: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    k: int | None = None,
    workers: int | None = None,
    batch_size: int = 4096,
    shards: ShardedRetriever | None = None,
    overwrite: bool = False,
) -> None:
    """Slates for the users in a Parquet file or folder, into the folder ``out``.

    Parameters
    ----------
    bundle
        A folder that every worker can open.
    users, out
        Where the users are read and the slates are written: paths or addresses (``s3://…``).
    k
        The number of items on a slate; by default that of the training.
    workers
        Processes that answer, each with the bundle; by default one for each CPU of the cluster, of
        which they take half, and two for shards, which do the searching.
    batch_size
        Users in a batch.
    shards
        Where items are searched for, for a catalogue that no worker holds.
    overwrite
        Replace what is in ``out``, once all slates are written; without it a folder that holds
        anything is refused.
    """
    users, out = os.fspath(users), os.fspath(out)
    files, at = pyarrow.fs.FileSystem.from_uri(out if "://" in out else Path(out).absolute().as_uri())
    there = [found for found in _found(files, at) if found.base_name != _UNFINISHED]
    if there and not overwrite:
        raise ValueError(f"out: {out} holds files already; give overwrite=True, or another folder")
    resources: Any = ray.cluster_resources()  # type: ignore[no-untyped-call]
    cpus = int(resources.get("CPU", 1))
    count = workers or (2 if shards is not None else max(1, cpus))
    asked: dict[str, Any] = {"k": k, "shards": shards}
    # Ray reads small files as one block, which one worker would answer alone.
    read = ray.data.read_parquet(users)
    if "user_id" not in read.schema().names:
        raise ValueError("users: expected a column `user_id`, which says whose the slates are")
    blocks = read.repartition(target_num_rows_per_block=batch_size)
    slates = blocks.map_batches(
        SlatesOf,
        fn_constructor_args=(str(bundle),),
        fn_constructor_kwargs=asked,
        batch_format="pyarrow",
        batch_size=batch_size,
        # A worker that dies is started again, and asked again.
        compute=ray.data.ActorPoolStrategy(size=count),
        # Workers that took all CPUs would wait for ever for what reads their input.
        num_cpus=0.5 if shards is None else 0,
        runtime_env={"env_vars": {"RAYON_NUM_THREADS": "1"}},
    )
    unfinished = f"{at}/{_UNFINISHED}"
    slates.write_parquet(unfinished, filesystem=files, mode=ray.data.SaveMode.OVERWRITE)
    for old in there:
        if old.type == pyarrow.fs.FileType.Directory:
            files.delete_dir(old.path)
        else:
            files.delete_file(old.path)
    for new in _found(files, unfinished):
        files.move(new.path, f"{at}/{new.base_name}")
    # An object store has no empty folder.
    if files.get_file_info(unfinished).type != pyarrow.fs.FileType.NotFound:
        files.delete_dir(unfinished)


def _found(files: pyarrow.fs.FileSystem, at: str) -> list[pyarrow.fs.FileInfo]:
    """What is in a folder, if it is there."""
    return list(files.get_file_info(pyarrow.fs.FileSelector(at, allow_not_found=True)))
