"""Users → slates, for everybody."""

from __future__ import annotations

import gc
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import ray

from ..recommender import Recommender
from ._shards import ShardedRetriever
from ._shared import answered, shared

_DONE = "_SUCCESS"
"""Written last to an object store, which has no folders to put in each other's place."""


class SlatesOf(Recommender):
    """A bundle for ``ray.data.Dataset.map_batches``: a batch of users in, their slates out.

    A batch has a column ``user_id``, ``items`` (lists of ids) or both; the slates have ``user``,
    ``rank``, ``item_id``, ``score`` and, where the bundle has titles, ``title``. Where the batch has
    both columns, ``user`` is the id. With ``whole``, the digest of a bundle, any other is refused: a
    worker that is started again may find another one in its folder.
    """

    def __init__(self, bundle: str, *, whole: str | None = None, **arguments: Any) -> None:
        super().__init__(bundle, **arguments)
        if whole not in (None, found := self._asked().whole()):
            raise ValueError(
                f"bundle: {bundle} was replaced: expected the bundle {whole}, found {found}; "
                "begin again"
            )

    def __call__(self, batch: pa.Table) -> pa.Table:
        """The slates of a batch."""
        slates = pa.table(super().__call__(batch))
        if "user_id" in batch.column_names:
            # A bundle without histories knows no type of ids.
            users = slates.column("user").cast(batch.schema.field("user_id").type)
            slates = slates.set_column(0, "user", users)
        return slates


def recommend(
    bundle: str | os.PathLike[str],
    users: str,
    out: str,
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
        A folder that every worker can open, and that holds one bundle all the while.
    users, out
        Where the users are read and the slates are written: paths or addresses (``s3://…``). A
        path must be on a disk that all nodes share. It has the slates of all or is as it was before;
        in an object store, a file ``_SUCCESS`` that is written last says that all are there.
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
        Replace what is in ``out``; without it a folder that holds anything is refused.
    """
    files, at = pyarrow.fs.FileSystem.from_uri(out if "://" in out else Path(out).absolute().as_uri())
    there = files.get_file_info(pyarrow.fs.FileSelector(at, allow_not_found=True))
    if there and not overwrite:
        raise ValueError(f"out: {out} holds files already; give overwrite=True, or another folder")
    local = isinstance(files, pyarrow.fs.LocalFileSystem)
    resources: Any = ray.cluster_resources()  # type: ignore[no-untyped-call]
    cpus = int(resources.get("CPU", 1))
    count = workers or (2 if shards is not None else max(1, cpus))
    asked: dict[str, Any] = {"k": k, "shards": shards}
    # Workers of a pipeline that is over keep their CPUs until Python forgets them: these would wait.
    gc.collect()
    read = ray.data.read_parquet(users)
    names = read.schema().names
    if "user_id" not in names:
        raise ValueError("users: expected a column `user_id`, which says whose the slates are")
    looks: Any = ray.remote(num_cpus=0, num_returns=2)(_looked_at)
    whole, known = looks.remote(str(bundle))
    [asked["whole"]] = answered([whole], None)
    if "items" not in names:
        _require_known(read, known, str(bundle))
    # Ray reads small files as one block, which one worker would answer alone.
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
    if not local:
        mode = ray.data.SaveMode.OVERWRITE if overwrite else ray.data.SaveMode.APPEND
        slates.write_parquet(out, mode=mode)
        files.open_output_stream(f"{at}/{_DONE}").close()
        return
    place = Path(at)
    fresh = uuid.uuid4().hex
    beside, before = (place.with_name(f"{place.name}.{of}-{fresh}") for of in ("partial", "old"))
    beside.mkdir(parents=True)
    try:
        with shared(beside, out):
            slates.write_parquet(str(beside), try_create_dir=False)
        if place.exists():
            place.rename(before)
        beside.rename(place)
        shutil.rmtree(before, ignore_errors=True)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _looked_at(bundle: str) -> tuple[str | None, pa.Array]:
    """The digest of a bundle, and the ids of its users."""
    recommender = Recommender(bundle)
    return recommender._asked().whole(), pa.array(recommender.user_ids_).cast(pa.string())


def _require_known(read: Any, known: Any, bundle: str) -> None:
    """Refuses users whom the bundle does not know before any slate is made."""

    def unknown(batch: pa.Table) -> pa.Table:
        ids = batch.column("user_id").cast(pa.string())
        strange = pc.invert(pc.is_in(ids, value_set=ray.get(known)))
        return pa.table({"user_id": ids.filter(strange)})

    users = read.select_columns(["user_id"])
    if strange := users.map_batches(unknown, batch_format="pyarrow", batch_size=None).take(1):
        raise ValueError(
            f"users: {bundle} does not know the user {strange[0]['user_id']!r}; leave such users out, "
            "give a column `items`, or export the bundle with --histories if it has none"
        )
