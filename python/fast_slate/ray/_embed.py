"""A log → item vectors, by users' rows in several processes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import ray

from .. import _native
from ._log import digits, read
from ._shared import answered

_COLUMNS = 32
"""Columns of a block that travel at once."""


class Users:
    """Some users' rows. What it holds follows from its arguments, so that it can die and come back."""

    def __init__(self, log: str, user: str, item: str, part: int, of: int) -> None:
        users, items = [], []
        for batch in read(log, [user, item]).to_batches(columns=[user, item]):
            whose, what = batch.column(user), batch.column(item)
            for name, column in ((user, whose), (item, what)):
                if column.null_count:
                    raise ValueError(f"{log}: column {name}: expected an id in each row, found none")
            own = pa.array(digits(whose) % np.uint64(of) == part)
            users.append(whose.filter(own))
            items.append(what.filter(own))
        schema = read(log, [user, item]).schema
        who, _ = _numbered(users, schema.field(user).type)
        what, self._items = _numbered(items, schema.field(item).type)
        # An item that a user took twice counts once.
        pairs = np.unique(who.astype(np.int64) * max(1, len(self._items)) + what)
        self._pairs = [of.astype(np.int32) for of in np.divmod(pairs, max(1, len(self._items)))]
        self._log, self._digest = log, _digest(pairs, self._items)
        self._slice: _native.Slice | None = None

    def counts(self) -> tuple[pa.Array, npt.NDArray[np.int64], int, str]:
        """The items here, the users of each, the number of users, and the digest of the rows."""
        who, what = self._pairs
        users = np.bincount(what, minlength=len(self._items))
        # Users are numbered without gaps, and ascend.
        return self._items, users, int(who[-1]) + 1 if len(who) else 0, self._digest

    def energy(self, whole: Any, digest: str) -> float:
        """The sum of the squared entries of the rows with this digest."""
        return self._sliced(whole, digest).energy()

    def times(
        self, whole: Any, digest: str, block: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """A_pᵀ(A_p X) of the rows with this digest."""
        return np.asarray(self._sliced(whole, digest).times(block))

    def process(self) -> int:
        """The actor's process."""
        return os.getpid()

    def _sliced(
        self, whole: tuple[pa.Array, npt.NDArray[np.int32], float], digest: str
    ) -> _native.Slice:
        """The rows under the numbers of the whole; made anew where the actor is."""
        if digest != self._digest:
            raise ValueError(
                f"{self._log}: its rows changed while they were read, so that an actor that was "
                "started again found others; embed a log that stays as it is"
            )
        if self._slice is None:
            items, counts, normalization = whole
            numbers = pc.index_in(self._items, value_set=items).to_numpy(zero_copy_only=False)
            who, what = self._pairs
            self._slice = _native.Slice(who, numbers.astype(np.int32)[what], counts, normalization)
            self._pairs = []
        return self._slice


def _digest(pairs: npt.NDArray[np.int64], items: pa.Array) -> str:
    """The same for the same users in the same order, and the same items of theirs."""
    found = hashlib.blake2b(np.ascontiguousarray(pairs).data, digest_size=16)
    found.update(np.ascontiguousarray(digits(items)).data)
    return found.hexdigest()


def _numbered(chunks: list[pa.Array], of: pa.DataType) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """The place of each value among the different ones, which ascend."""
    values = pa.chunked_array(chunks, type=of)
    different = values.unique()
    different = different.take(pc.sort_indices(different))
    places = pc.index_in(values, value_set=different).combine_chunks()
    return places.to_numpy(zero_copy_only=False).astype(np.int32), different


def embed(
    log: str,
    out: str | os.PathLike[str],
    *,
    user: str = "user_id",
    item: str = "item_id",
    latent_dim: int = 100,
    normalization: float = 0.25,
    passes: int = 2,
    seed: int = 0,
    actors: int = 2,
    threads: int | None = None,
    timeout: float = 3600.0,
    options: dict[str, Any] | None = None,
    started: Callable[[list[Any]], object] | None = None,
) -> None:
    """The SVD of the interactions in a log, for ``slate prepare --embeddings``.

    The rows of a user are with one actor. The subspace iteration runs here, as on one machine; actors
    multiply, and their products are summed in their order, so that the same log and number of actors
    give the same vectors.

    Parameters
    ----------
    log
        A Parquet file, or a folder of them, perhaps partitioned as Hive does it.
    out
        The ``.safetensors`` file to write: V, the singular values, and beside it ``.ids`` with the
        item of each row, one a line.
    user, item
        Names of columns.
    latent_dim, normalization, passes, seed
        L and η, as ``slate prepare`` has ``--latent-dim`` and ``--normalization``; the passes of the
        iteration, 0 for an SVD that ends softly; the seed of its start.
    actors
        How many; each holds the rows of its users.
    threads
        Threads of each actor; by default the cores of this machine, divided by their number.
    timeout
        Seconds for one product, with the start of a new actor and its reading of the log in it.
    options
        More options of the actors, such as ``resources`` or ``memory``.
    started
        Is told the actors.
    """
    path = Path(out)
    if "://" in str(out):
        raise ValueError(f"out: expected a file of this machine, found {out}; copy it there afterwards")
    if path.suffix != ".safetensors":
        raise ValueError(f"out: expected a .safetensors file, found {path}")
    read(log, [user, item])
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"out: {path.parent} cannot be written to")
    threads = threads or max(1, (os.cpu_count() or 1) // actors)
    chosen: dict[str, Any] = {
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": -1,
        "runtime_env": {"env_vars": {"RAYON_NUM_THREADS": str(threads)}},
        **(options or {}),
    }
    actor = ray.remote(**chosen)(Users)
    slices: list[Any] = [actor.remote(log, user, item, part, actors) for part in range(actors)]
    if started is not None:
        started(slices)

    def asked(references: list[Any]) -> list[Any]:
        try:
            return answered(references, timeout)
        except ray.exceptions.GetTimeoutError:
            raise TimeoutError(f"embed: no answer of all {actors} actors in {timeout:g} s") from None

    try:
        said = asked([of.counts.remote() for of in slices])
        table = pa.table(
            {
                "item": pa.chunked_array([items for items, _, _, _ in said]),
                "users": np.concatenate([counts for _, counts, _, _ in said]),
            }
        )
        table = table.group_by("item").aggregate([("users", "sum")]).sort_by("item")
        items = table.column("item").combine_chunks()
        counts = table.column("users_sum").to_numpy().astype(np.int32)
        whole = ray.put((items, counts, normalization))
        # Who is started again reads the log again, and must find the same.
        digests = [digest for _, _, _, digest in said]
        known = list(zip(slices, digests, strict=True))
        energy = sum(asked([of.energy.remote(whole, digest) for of, digest in known]))

        def times(block: Any) -> npt.NDArray[np.float32]:
            block = np.asarray(block)
            product = np.empty(block.shape, np.float32)
            for first in range(0, block.shape[1], _COLUMNS):
                columns = slice(first, first + _COLUMNS)
                part = ray.put(np.ascontiguousarray(block[:, columns]))
                parts = asked([of.times.remote(whole, digest, part) for of, digest in known])
                total = parts[0].copy()
                for other in parts[1:]:
                    total += other
                product[:, columns] = total
            return product

        shape = (sum(users for _, _, users, _ in said), len(items))
        beside = path.with_name(path.name + ".part")
        _native.decompose(
            times,
            shape,
            energy,
            str(beside),
            latent_dim=latent_dim,
            normalization=normalization,
            passes=passes,
            seed=seed,
        )
        ids = path.with_suffix(".ids")
        ids_beside = ids.with_name(ids.name + ".part")
        listed = "".join(f"{of}\n" for of in items.cast(pa.string()).to_pylist())
        ids_beside.write_text(listed, encoding="utf-8")
        ids_beside.replace(ids)
        beside.replace(path)
    finally:
        for of in slices:
            ray.kill(of)
