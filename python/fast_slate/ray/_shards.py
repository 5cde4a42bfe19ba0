"""A catalogue in parts, an actor each."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import ray

from .. import _native
from ._shared import answered

Found = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]
Folder = str | os.PathLike[str]

_LARGE = 100_000
"""Arguments of more bytes are kept once for all actors; smaller ones travel with the call."""


class About(NamedTuple):
    """What a shard holds."""

    part: dict[str, Any] | None
    """Which part of which whole."""
    vectors: str
    """The digest of the vectors of the whole, which says whether they are rounded."""
    has_index: bool


class Shard:
    """A part of a catalogue, opened as ``slate serve`` opens it."""

    def __init__(self, folder: str, exact: bool) -> None:
        self._native = _native.Recommender.open(folder, None)
        manifest = tomllib.loads((Path(folder) / "bundle.toml").read_text(encoding="utf-8"))
        scalar = manifest["vectors"]["scalar"]
        vectors = self._native.vectors() + ("" if scalar == "f32" else f" in {scalar}")
        part = json.loads(self._native.part())
        self._folder, self._exact = folder, exact
        self._about = About(part, vectors, "index" in manifest)

    def about(self) -> About:
        """What it holds."""
        return self._about

    def process(self) -> int:
        """The actor's process."""
        return os.getpid()

    def search(self, asked: tuple[Any, int, Any, Any], exact: bool, part: dict[str, Any]) -> Found:
        """The best items here, if it holds this ``part``."""
        if self._about.part != part:
            raise ValueError(
                f"{self._folder}: was replaced, so that an actor which was started again found "
                f"{_named(self._about.part)}, expected {_named(part)}; start the shards anew"
            )
        actions, scores = self._native.search(*asked, exact=exact or self._exact)
        return np.asarray(actions), np.asarray(scores)


class ShardedRetriever:
    """The shards of a bundle, ``slate export RUN --out BUNDLE --shards N``, an actor each.

    It takes the place of the search in ``SlatePolicy.fit(…, shards=…)``, ``SlatePolicy.evaluate``
    after it, and ``Recommender(BUNDLE, shards=…)``. Exact shards give the slates of one process, bit
    for bit. An actor that dies is started again, reads its shard, and answers what was asked of it.

    Parameters
    ----------
    bundle
        The bundle whose shards lie beside it, or the folders of all shards.
    exact
        Search exactly, although the shards have an index.
    threads
        Threads of each actor; by default the cores of this machine, divided by their number.
    timeout
        Seconds after which a search fails, with the start of a new actor in it.
    options
        More options of the actors, such as ``resources``. They take no CPUs of Ray's account, so
        that tasks which read data are never kept waiting by shards that wait for them.
    """

    def __init__(
        self,
        bundle: Folder | Sequence[Folder],
        *,
        exact: bool = False,
        threads: int | None = None,
        timeout: float = 60.0,
        options: dict[str, Any] | None = None,
    ) -> None:
        folders = _folders(bundle)
        threads = threads or max(1, (os.cpu_count() or 1) // len(folders))
        environment = {"env_vars": {"RAYON_NUM_THREADS": str(threads)}}
        chosen: dict[str, Any] = {
            "num_cpus": 0,
            "max_restarts": -1,
            "max_task_retries": -1,
            "runtime_env": environment,
            **(options or {}),
        }
        actor = ray.remote(**chosen)(Shard)
        self.folders, self.exact, self.timeout = folders, exact, timeout
        self._actors: list[Any] = [actor.remote(folder, exact) for folder in folders]
        self._check(self._asked([actor.about.remote() for actor in self._actors]))

    def _check(self, said: list[About]) -> None:
        """Fails unless the actors hold all parts of one bundle; puts them in the order of the parts."""
        parts = []
        for folder, about in zip(self.folders, said, strict=True):
            if about.part is None:
                raise ValueError(f"bundle: {folder} is no shard; make some with --shards N")
            parts.append(about.part)
        places = [part["index"] for part in parts]
        wholes = {part["whole"] for part in parts}
        if len(wholes) > 1 or sorted(places) != list(range(1, parts[0]["of"] + 1)):
            listed = ", ".join(self.folders)
            raise ValueError(f"bundle: expected each shard of one bundle once, found {listed}")
        order = np.argsort(places)
        self._actors = [self._actors[at] for at in order]
        self._parts = [parts[at] for at in order]
        self.folders = [self.folders[at] for at in order]
        self._whole, self._vectors = str(parts[0]["whole"]), said[0].vectors
        self.has_index = any(about.has_index for about in said) and not self.exact

    def _asked(self, references: list[Any]) -> list[Any]:
        try:
            return answered(references, self.timeout)
        except ray.exceptions.GetTimeoutError:
            _, waiting = ray.wait(references, num_returns=len(references), timeout=0)
            late = [self.folders[at] for at, of in enumerate(references) if of in waiting]
            raise TimeoutError(
                f"no answer in {self.timeout:g} s of {', '.join(late) or 'a shard'}"
            ) from None

    @property
    def vectors(self) -> str:
        """The digest of the vectors that the shards hold together; other words for rounded ones."""
        return self._vectors

    @property
    def whole(self) -> str:
        """The digest of the bundle whose shards they are."""
        return self._whole

    def __call__(
        self, latent: Any, k: int, starts: Any, excluded: Any, *, exact: bool = False
    ) -> list[Found]:
        """What each shard has for queries ``[N, L]``; if ``exact``, without its index."""
        asked: Any = tuple(np.asarray(of) for of in (latent, starts, excluded))
        size = sum(of.nbytes for of in asked)
        asked = (asked[0], k, asked[1], asked[2])
        if size > _LARGE:
            asked = ray.put(asked)
        actors = zip(self._actors, self._parts, strict=True)
        return self._asked([actor.search.remote(asked, exact, part) for actor, part in actors])

    def close(self) -> None:
        """Ends the actors."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []

    def __repr__(self) -> str:
        return f"ShardedRetriever({self.folders!r})"


def _named(part: dict[str, Any] | None) -> str:
    if part is None:
        return "no shard"
    return f"part {part['index']} of {part['of']} of the bundle {part['whole'][:12]}"


def _folders(bundle: Folder | Sequence[Folder]) -> list[str]:
    if not isinstance(bundle, str | os.PathLike):
        return [str(folder) for folder in bundle]
    path = Path(bundle).absolute()
    named = re.compile(re.escape(path.name) + r"-\d+-of-(\d+)")
    found = [(of, named.fullmatch(of.name)) for of in path.parent.iterdir()]
    counts = sorted({int(match[1]) for _, match in found if match})
    if len(counts) != 1:
        there = f"of {' and of '.join(map(str, counts))} parts" if counts else "none"
        raise ValueError(
            f"bundle: expected the shards of {path.name} beside it, found {there}; write them with "
            "`slate export … --shards N`, or give the folders"
        )
    return sorted(str(of) for of, match in found if match)
