"""A function of slates → the reward of a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _native

Slates = npt.NDArray[np.int32]
Reward = Callable[["Batch", Slates], Any]

BUILT_IN = (
    "discounted",
    "dcg",
    "hits",
    "any-hit",
    "reciprocal-rank",
    "cascade",
    "diverse",
    "diverse-any-hit",
)


@dataclass(frozen=True)
class Rows:
    """A set of item numbers for each of B users, as compressed sparse rows."""

    indptr: npt.NDArray[np.int64]
    """Where each user's items begin, ``[B + 1]``."""
    indices: npt.NDArray[np.int32]
    """The items, ascending within a user."""
    shape: tuple[int, int]
    """``(B, P)``."""

    def __getitem__(self, row: int) -> npt.NDArray[np.int32]:
        return self.indices[self.indptr[row] : self.indptr[row + 1]]

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.csr_array`` of ones."""
        from scipy.sparse import csr_array

        ones = np.ones(len(self.indices), dtype=np.float32)
        return csr_array((ones, self.indices, self.indptr), shape=self.shape)


class Batch:
    """What a reward may look at: B users with S slates each, in this order, n = B·S.

    Slate ``i`` is for user ``batch.row[i]`` of the batch. All arrays are read-only. The halves are
    those of this visit: with ``context.redraw`` another visit observes and hides other items, and
    with ``evaluation.validation_halves`` validation users are asked about several halves.
    """

    def __init__(self, visit: _native.Visit, item_ids: Callable[[], npt.NDArray[Any]] | None = None) -> None:
        self._visit = visit
        self._item_ids = item_ids

    @cached_property
    def users(self) -> npt.NDArray[np.int32]:
        """Number of each user's context, ``[B]``."""
        return np.asarray(self._visit.users())

    @cached_property
    def slates(self) -> Slates:
        """The slates that are to be judged, ``[n, K]``."""
        return np.asarray(self._visit.slates())

    @property
    def item_ids(self) -> npt.NDArray[Any]:
        """The id of each item, ``[P]``: ``batch.item_ids[slates]`` are those of the slates."""
        return self._item_ids() if self._item_ids else np.asarray(self._visit.ids().cells("item_id"))

    @cached_property
    def row(self) -> npt.NDArray[np.intp]:
        """The user of each slate, as a row of ``users``, ``observed`` and ``hidden``, ``[n]``."""
        return np.repeat(np.arange(len(self.users)), len(self.slates) // len(self.users))

    @cached_property
    def observed(self) -> Rows:
        """The items that the policy sees of each user, X."""
        return self._rows(self._visit.observed())

    @cached_property
    def hidden(self) -> Rows:
        """The items that the policy does not see, Y: what is relevant."""
        return self._rows(self._visit.hidden())

    @cached_property
    def hits(self) -> npt.NDArray[np.bool_]:
        """True where an item of a slate is hidden of its user, ``[n, K]``."""
        return np.asarray(self._visit.hits())

    def _rows(self, of: tuple[_native.Array, _native.Array]) -> Rows:
        indptr, indices = (np.asarray(part) for part in of)
        return Rows(indptr, indices, (len(indptr) - 1, self._visit.num_items()))


def name_of(reward: Reward) -> str:
    """The name that a run records."""
    return getattr(reward, "__name__", type(reward).__name__)


def adapted(reward: Reward) -> tuple[Callable[[_native.Visit], Any], str]:
    """The function as a run calls it, and its name."""
    name = name_of(reward)
    ids: list[npt.NDArray[Any]] = []

    def item_ids(visit: _native.Visit) -> npt.NDArray[Any]:
        if not ids:  # a run has one catalogue, and steps are many
            ids.append(np.asarray(visit.ids().cells("item_id")))
        return ids[0]

    def call(visit: _native.Visit) -> npt.NDArray[np.float32]:
        batch = Batch(visit, lambda: item_ids(visit))
        slates = batch.slates
        returned = reward(batch, slates)
        try:
            rewards = np.asarray(returned, dtype=np.float32)
        except (TypeError, ValueError) as error:
            found = type(returned).__name__
            raise ValueError(
                f"reward `{name}`: expected {len(slates)} numbers, found {found}"
            ) from error
        if rewards.shape != (len(slates),):
            raise ValueError(
                f"reward `{name}`: expected the shape ({len(slates)},), a number for each slate, "
                f"found {rewards.shape}"
            )
        if not np.isfinite(rewards).all():
            at = int(np.flatnonzero(~np.isfinite(rewards))[0])
            raise ValueError(
                f"reward `{name}`: expected finite numbers, found {rewards[at]} for slate {at}"
            )
        return np.ascontiguousarray(rewards)

    return call, name
