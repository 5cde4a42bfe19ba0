"""The library as Python sees it; the package wraps it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__version__: str
KNOWN_COLUMNS: list[str]

class Array:
    """Numbers that ``numpy.asarray`` views, read-only."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

class Table:
    """A table that Arrow libraries read without a copy."""

    def __init__(
        self, columns: Sequence[tuple[str, list[Any]]], dtypes: Sequence[str] | None = None
    ) -> None: ...
    @property
    def column_names(self) -> list[str]: ...
    @property
    def dtypes(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def cells(self, column: str, rows: int | None = None) -> list[Any]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Interactions:
    """Interactions in memory."""

    @staticmethod
    def of_stream(object: Any, columns: Sequence[str]) -> Interactions: ...
    @staticmethod
    def of_pairs(
        user: npt.NDArray[np.int64],
        item: npt.NDArray[np.int64],
        weight: npt.NDArray[np.float32] | npt.NDArray[np.float64] | None = None,
    ) -> Interactions: ...
    def distinct(self, wanted: str) -> Table: ...
    @property
    def column_names(self) -> list[str]: ...

class Slice:
    """Some users' rows of a matrix."""

    def __init__(
        self,
        users: npt.NDArray[np.int32],
        items: npt.NDArray[np.int32],
        counts: npt.NDArray[np.int32],
        normalization: float,
    ) -> None: ...
    def times(self, block: npt.NDArray[np.float32]) -> Array: ...
    def energy(self) -> float: ...

def decompose(
    call: Callable[[Array], npt.NDArray[np.float32]],
    shape: tuple[int, int],
    energy: float,
    out: str,
    *,
    latent_dim: int,
    normalization: float,
    passes: int,
    seed: int,
) -> None: ...

class Visit:
    """Slates that a reward is asked for, and the users they are for."""

    def users(self) -> Array: ...
    def slates(self) -> Array: ...
    def observed(self) -> tuple[Array, Array]: ...
    def hidden(self) -> tuple[Array, Array]: ...
    def hits(self) -> Array: ...
    def num_items(self) -> int: ...
    def ids(self) -> Table: ...

AskShards = Callable[[Array, int, Array, Array], Sequence[tuple[Any, Any]]]
"""Queries, K, and the excluded items of each query → what each shard answers."""

class Recommender:
    """A policy and all that it needs to answer."""

    @staticmethod
    def open(folder: str, device: str | None) -> Recommender: ...
    @staticmethod
    def is_bundle(folder: str) -> bool: ...
    def answer(
        self,
        users: list[str] | None,
        items: list[list[str] | None] | None,
        contexts: npt.NDArray[np.float32] | None,
        *,
        k: int | None,
        exclude_seen: bool,
        exclude: list[str],
        candidates: list[str] | None,
        exact: bool,
        max_per_group: int | None,
        seed: int | None,
        queries: bool,
    ) -> tuple[Table, tuple[Array, Array, Array] | None, list[str]]: ...
    def through(self, shards: AskShards) -> Recommender: ...
    def search(
        self,
        latent: npt.NDArray[np.float32],
        k: int,
        starts: npt.NDArray[np.int64],
        excluded: npt.NDArray[np.int32],
        *,
        exact: bool = False,
    ) -> tuple[Array, Array]: ...
    def part(self) -> str: ...
    def whole(self) -> str | None: ...
    def vectors(self) -> str: ...
    def items(self) -> Table: ...
    def users(self) -> Table | None: ...
    def embeddings(self) -> Array: ...
    @property
    def slate_size(self) -> int: ...
    @property
    def context_dim(self) -> int: ...
    def write(self, folder: str, replace: bool) -> None: ...

class Lock:
    """Keeps other fits from training in a folder."""

    def __init__(self, run: str) -> None: ...
    def release(self) -> None: ...

class Run:
    """A trained run, opened at a checkpoint."""

    @staticmethod
    def open(
        folder: str,
        device: str | None,
        checkpoint: str,
        reward: tuple[Callable[[Visit], Any], str] | None = None,
    ) -> Run: ...
    def recommender(self) -> Recommender: ...
    def judge(
        self,
        against: list[str],
        split: str | None,
        metrics: list[str],
        tune: int,
        halves: int | None,
        index: bool,
    ) -> str: ...
    def can_be_refitted(self) -> bool: ...
    def history(self) -> str: ...
    def plot(self) -> str: ...
    def describe(self) -> str: ...

def command(words: Sequence[str], program: str) -> int: ...
def prepare(interactions: Interactions | str, wanted: str) -> str: ...
def check_prepare(wanted: str) -> None: ...
def write_table(object: Any, path: str, argument: str, columns: Sequence[str]) -> None: ...
def resolve(name: str, keys: Sequence[tuple[str, Any]], device: str | None = None) -> str: ...
def refit(
    of: str,
    run: str,
    *,
    device: str | None = None,
    reward: tuple[Callable[[Visit], Any], str] | None = None,
    watcher: Callable[[str, Any], None] | None = None,
) -> Run: ...
def train(
    data: str | None,
    run: str,
    name: str,
    keys: Sequence[tuple[str, Any]],
    *,
    device: str | None = None,
    resume: bool = False,
    reward: tuple[Callable[[Visit], Any], str] | None = None,
    shards: tuple[AskShards, str] | None = None,
    watcher: Callable[[str, Any], None] | None = None,
    lock: Lock | None = None,
) -> Run: ...
