"""Requests → slates."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from . import _native
from ._interactions import ids
from .results import Sample, Table

Ids = Any
"""A list, array, series or column of integers or texts, or one of them."""


class Shards(Protocol):
    """The parts of a catalogue, each searched by a process of its own."""

    @property
    def vectors(self) -> str:
        """The digest of the vectors that the shards hold together."""

    @property
    def whole(self) -> str:
        """The digest of the bundle whose shards they are."""

    def __call__(
        self, latent: Any, k: int, starts: Any, excluded: Any, *, exact: bool = False
    ) -> list[tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]]:
        """What each shard has for queries ``[N, L]``: numbers of items and scores, ``[N, k]``.

        Query ``i`` leaves out the items ``excluded[starts[i]:starts[i + 1]]``. If ``exact``, no index
        is used.
        """


USUAL: dict[str, Any] = {
    "k": None,
    "exclude_seen": True,
    "max_per_group": None,
    "exact": False,
    "seed": None,
    "queries": False,
}
"""How slates are asked for, unless a call says otherwise."""


class Answering:
    """What a trained policy can be asked for."""

    def _asked(self) -> _native.Recommender:
        raise NotImplementedError

    def _searching(self, exact: bool) -> _native.Recommender:
        """What answers requests that ask for an ``exact`` search or not."""
        return self._asked()

    def recommend(
        self,
        users: Ids | None = None,
        *,
        items: Iterable[Any] | None = None,
        contexts: npt.ArrayLike | None = None,
        k: int | None = None,
        exclude_seen: bool = True,
        exclude: Ids | None = None,
        candidates: Ids | None = None,
        max_per_group: int | None = None,
        exact: bool = False,
    ) -> Table:
        """The slates, best item first.

        Parameters
        ----------
        users
            Ids of users in the training data.
        items
            In the place of users: for each person a list of the ids of their items, the latest last.
            A flat list is one person; None, NaN or ``pandas.NA`` in place of a list is an empty one.
        contexts
            In the place of users: contexts M(X) of your own, ``[n, D]``.
        k
            The number of items on a slate; by default that of the training.
        exclude_seen
            Show nobody what they have interacted with.
        exclude, candidates
            Ids of items that stay off all slates, or of the only ones that may be shown.
        max_per_group
            The most items of one group on a slate.
        exact
            Search exactly, although the policy has an index.

        Returns
        -------
        Table
            ``user`` (the id, or the place of the request), ``rank`` from 1, ``item_id``, ``score``
            (hᵀβ) and, where items have titles, ``title``. A slate is shorter where too little is left.
        """
        answered = self._answer(
            users,
            items,
            contexts,
            k=k,
            exclude_seen=exclude_seen,
            exclude=exclude,
            candidates=candidates,
            max_per_group=max_per_group,
            exact=exact,
        )
        return Table(answered[0])

    def query(
        self,
        users: Ids | None = None,
        *,
        items: Iterable[Any] | None = None,
        contexts: npt.ArrayLike | None = None,
    ) -> npt.NDArray[np.float32]:
        """The queries h, ``[n, L]``, for an index of your own over ``embeddings_``."""
        _, queries, _ = self._answer(users, items, contexts, k=1, exclude_seen=False, queries=True)
        if queries is None:
            return np.empty((0, np.asarray(self._asked().embeddings()).shape[1]), np.float32)
        return np.asarray(queries[0])

    def sample(
        self,
        users: Ids | None = None,
        *,
        items: Iterable[Any] | None = None,
        draws: int = 1,
        seed: int = 0,
        k: int | None = None,
        exclude_seen: bool = True,
        exclude: Ids | None = None,
        candidates: Ids | None = None,
    ) -> Sample:
        """Slates of the policy itself, h + σε with ε Gaussian, with all that a log needs.

        ``draws`` slates for each user; the same ``seed`` and requests give the same slates.
        """
        count(draws, "draws", 1)
        count(seed, "seed", 0)
        if users is not None:
            users = [user for user in ids(users, "users") for _ in range(draws)]
        if items is not None:
            items = [own for own in _people(items, False) for _ in range(draws)]
        native, queries, _ = self._answer(
            users,
            items,
            None,
            k=k,
            exclude_seen=exclude_seen,
            exclude=exclude,
            candidates=candidates,
            seed=seed,
            queries=True,
        )
        columns = Table(native).to_dict()
        if items is None:
            starts = np.cumsum(np.asarray(columns["rank"]) == 1) - 1
        else:  # the place of the request: an empty slate has no row
            starts = np.asarray(columns["user"], dtype=np.int64)
        columns = {"user": columns.pop("user"), "draw": (starts % draws).tolist(), **columns}
        if items is not None:
            columns["user"] = (starts // draws).tolist()
        empty = np.empty((0, 0), np.float32)
        h, z, sigma = map(np.asarray, queries) if queries else (empty, empty, empty[0:0, 0:0].ravel())
        return Sample(Table(columns), h, z, sigma)

    def _answer(
        self,
        users: Ids | None,
        items: Iterable[Any] | None,
        contexts: npt.ArrayLike | None,
        *,
        exclude: Ids | None = None,
        candidates: Ids | None = None,
        of_batch: bool = False,
        **asked: Any,
    ) -> tuple[_native.Table, tuple[_native.Array, _native.Array, _native.Array] | None, list[str]]:
        given = [one for one in (users, items, contexts) if one is not None]
        if len(given) != 1 and not of_batch:
            raise ValueError("users: give one of users=, items= and contexts=")
        options = {**USUAL, **asked}
        native = self._searching(options["exact"])
        for name in ("k", "max_per_group"):
            if options[name] is not None:
                count(options[name], name, 1)
        if contexts is not None:
            try:
                contexts = np.atleast_2d(np.ascontiguousarray(contexts, dtype=np.float32))
            except (TypeError, ValueError) as error:
                raise ValueError(f"contexts: expected numbers [n, {native.context_dim}]") from error
            if contexts.shape[1] != native.context_dim:
                raise ValueError(
                    f"contexts: expected [n, {native.context_dim}], found {list(contexts.shape)}"
                )
        answered = native.answer(
            None if users is None else ids(users, "users"),
            None if items is None else _people(items, users is not None),
            contexts,
            exclude=[] if exclude is None else ids(exclude, "exclude"),
            candidates=None if candidates is None else ids(candidates, "candidates"),
            **options,
        )
        if ignored := answered[2]:
            more = f" and {len(ignored) - 1} others" if len(ignored) > 1 else ""
            warnings.warn(f"ignored `{ignored[0]}`{more}: not in the catalogue", stacklevel=3)
        return answered

    @property
    def embeddings_(self) -> npt.NDArray[np.float32]:
        """β ``[P, L]``, read-only; row i belongs to ``item_ids_[i]``."""
        return np.asarray(self._asked().embeddings())

    @property
    def item_ids_(self) -> npt.NDArray[Any]:
        """The item of each number, ``[P]``: integers where all ids of the log are, else texts."""
        return np.asarray(self._asked().items().cells("item_id"))

    @property
    def user_ids_(self) -> npt.NDArray[Any]:
        """The users who are known by id, ``[U]``."""
        users = self._asked().users()
        return np.asarray([] if users is None else users.cells("user_id"))

    def items(self) -> Table:
        """``item_id`` and, where there are any, ``title`` and ``group``; row i is item i."""
        return Table(self._asked().items())

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes a bundle: what ``slate serve``, ``slate recommend`` and ``load`` read."""
        self._asked().write(str(folder), overwrite)


class Recommender(Answering):
    """A bundle that answers, without anything of training.

    It is pickled as its path, so that every worker of Ray, Spark or joblib opens the folder by
    itself, when it is first asked. Called with a batch (a table, a record batch or a dictionary of columns) that has a
    column ``user_id``, or ``items`` with lists of ids, it returns the slates of its rows. With both, a row
    without a list is the user, if the bundle knows them, and ``user`` is the id.

    Parameters
    ----------
    bundle
        The folder of a bundle, or of a run.
    device
        ``"ndarray"``, ``"flex"``, ``"wgpu"``; by default the best one here.
    k
        The number of items on a slate when called.
    shards
        Where items are searched for, as :class:`fast_slate.ray.ShardedRetriever`, in the place of the
        bundle.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        *,
        device: str | None = None,
        k: int | None = None,
        shards: Shards | None = None,
    ) -> None:
        self.bundle = str(bundle)
        self.device = device
        self.k = k
        self.shards = shards
        self._open()

    def _open(self) -> None:
        native = opened(self.bundle, self.device)
        if self.shards is not None:
            if self.shards.whole != native.whole():
                raise ValueError(f"shards: expected those of {self.bundle}, found another bundle's")
            self._exactly = native.through(partial(self.shards, exact=True))
            native = native.through(self.shards)
        self._native: _native.Recommender | None = native

    def __call__(self, batch: Any) -> Table:
        columns = _columns(batch)
        users, items = columns.get("user_id"), columns.get("items")
        if users is None and items is None:
            raise KeyError(f"batch: expected a column user_id or items, found {', '.join(columns)}")
        if users is not None and items is not None and len(users) != len(items):
            raise ValueError(
                f"batch: expected as many user_id as items, found {len(users)} and {len(items)}"
            )
        answered = self._answer(users, items, None, of_batch=True, k=self.k)
        return Table(answered[0])

    def __getstate__(self) -> dict[str, Any]:
        return {"bundle": self.bundle, "device": self.device, "k": self.k, "shards": self.shards}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # What cannot be opened, as in a process that was forked, is told to whoever asks.
        self.__dict__.update(state, _native=None)

    def __repr__(self) -> str:
        return f"Recommender({self.bundle!r})"

    def _asked(self) -> _native.Recommender:
        if self._native is None:
            self._open()
        assert self._native is not None
        return self._native

    def _searching(self, exact: bool) -> _native.Recommender:
        asked = self._asked()
        return self._exactly if exact and self.shards is not None else asked


def opened(folder: str, device: str | None) -> _native.Recommender:
    """The recommender of a bundle or of a run."""
    if not Path(folder).exists():
        raise FileNotFoundError(f"bundle: {folder} is not there")
    if _native.Recommender.is_bundle(folder):
        return _native.Recommender.open(folder, device)
    return _native.Run.open(folder, device, "best").recommender()


def packed(native: _native.Recommender) -> dict[str, bytes]:
    """The bytes of a bundle's files."""
    with tempfile.TemporaryDirectory(prefix="fast-slate-") as folder:
        bundle = Path(folder) / "bundle"
        native.write(str(bundle), False)
        return {file.name: file.read_bytes() for file in sorted(bundle.iterdir())}


def unpacked(files: dict[str, bytes], device: str | None) -> _native.Recommender:
    """The recommender of a bundle's files. Opening reads all of them, so none has to stay."""
    with tempfile.TemporaryDirectory(prefix="fast-slate-") as folder:
        for name, content in files.items():
            if Path(name).name != name:
                raise ValueError(f"expected names of files, found {name!r}")
            (Path(folder) / name).write_bytes(content)
        return _native.Recommender.open(folder, device)


def count(of: Any, argument: str, least: int) -> None:
    """Refuses what is no whole number of at least so much, with the argument's name."""
    if isinstance(of, bool) or not isinstance(of, int | np.integer) or not least <= of < 2**63:
        raise ValueError(f"{argument}: expected a whole number of at least {least}, found {of!r}")


def _people(items: Iterable[Any], of_users: bool) -> list[list[str] | None]:
    """The items of each person; none, if they are `of_users` who may have none."""
    if isinstance(items, str) or not hasattr(items, "__iter__"):
        raise ValueError(f"items: expected a list of items, found {items!r}")
    people = items.to_pylist() if hasattr(items, "to_pylist") else list(items)
    if not of_users and any(isinstance(one, str | int | np.integer) for one in people):
        people = [people]
    nobody: list[str] | None = None if of_users else []
    return [nobody if _is_missing(own) else ids(own, "items") for own in people]


def _is_missing(of: Any) -> bool:
    """True for what an empty cell holds: None, NaN or ``pandas.NA``."""
    is_nan = isinstance(of, float | np.floating) and bool(np.isnan(of))
    return of is None or is_nan or type(of).__name__ == "NAType"


def _columns(batch: Any) -> dict[str, Any]:
    if isinstance(batch, dict):
        return batch
    if isinstance(batch, Table):
        return batch.to_dict()
    if hasattr(batch, "to_pydict"):
        return dict(batch.to_pydict())
    if hasattr(batch, "to_dict"):
        try:
            return dict(batch.to_dict(as_series=False))
        except TypeError:
            return dict(batch.to_dict("list"))
    raise ValueError(f"batch: expected a table or a dictionary, found {type(batch).__name__}")
