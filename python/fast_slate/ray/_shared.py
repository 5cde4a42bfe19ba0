"""A folder that processes on all nodes write to."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray


@contextmanager
def shared(folder: Path, out: str | os.PathLike[str]) -> Iterator[None]:
    """Says what to do where a node does not have ``folder``, which this one made."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        # Who keeps the error, as a notebook does, would keep the workers, and their CPUs, too.
        traceback.clear_frames(error.__traceback__)
        if isinstance(error, FileNotFoundError) and f"{folder}/" in str(error):
            raise ValueError(
                f"out: a node does not have the folder {folder.parent}; expected one that all "
                f"nodes share under this path, found {out}"
            ) from None
        raise


def answered(references: list[Any], timeout: float | None) -> list[Any]:
    """What actors answer in time, or the error of one of them as it was raised there.

    Raises
    ------
    ray.exceptions.GetTimeoutError
        One is late.
    RuntimeError
        One died and cannot be started again.
    """
    try:
        return list(ray.get(references, timeout=timeout))
    except ray.exceptions.ActorDiedError as error:
        # The last line of a traceback says what went wrong in the other process.
        raise RuntimeError(f"an actor died: {str(error).strip().splitlines()[-1]}") from None
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
