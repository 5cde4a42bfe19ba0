"""What the command line does with folders, for notebooks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from . import _native, rewards
from ._command import program
from ._interactions import plain
from .policy import KEYS, SlatePolicy, _prepare, divided


def prepare(
    interactions: Any,
    out: str | os.PathLike[str],
    *,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    embeddings: str | os.PathLike[str] = "auto",
    item_embeddings: Any = None,
    user_features: Any = None,
    reward: str | None = None,
    slate_size: int | None = None,
    preset: str = "default",
    seed: int | None = None,
    settings: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Prepares interactions into the folder ``out``, which ``fit``, ``train`` and the command read.

    The arguments are those of :meth:`SlatePolicy.fit` and :class:`SlatePolicy`; of ``settings`` the
    keys that begin with ``prepare.`` count, and ``reward.kind``, ``slate_size`` and ``seed``, in the
    place of the arguments. Returns what ``prepare.toml`` says.
    """
    columns = {"user": user, "item": item, "time": time, "weight": weight}
    given = zip(KEYS, KEYS.values(), (reward, slate_size, seed), strict=True)
    keys, more = divided(settings, given)
    judged = [name for name, key in KEYS.items() if key in keys and name != "seed"]
    if judged and (embeddings != "auto" or item_embeddings is not None):
        raise ValueError(
            f"{', '.join(judged)}: goes with embeddings=\"auto\", whose vectors are chosen by it; a run with "
            "other vectors is told what to train for"
        )
    # Settings of a run do not count here, but a key that is none is a slip.
    _native.resolve(preset, [item for item in keys.items() if item[0] not in KEYS.values()])
    return _prepare(
        interactions,
        columns,
        Path(out),
        keys,
        more,
        item_embeddings=item_embeddings,
        user_features=user_features,
        preset=preset,
        embeddings=embeddings,
        overwrite=overwrite,
    )


def train(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    reward: str | rewards.Reward | None = None,
    resume: bool = False,
    **parameters: Any,
) -> SlatePolicy:
    """Trains on a prepared folder into the run folder ``out``: ``SlatePolicy(…).fit(data, …)``.

    ``reward`` and ``slate_size`` are by default those that the folder's vectors were chosen by, and nothing
    is fitted again on everybody unless ``refit=True`` asks for it.
    """
    policy = SlatePolicy(reward=reward, **{"refit": False, **parameters})
    return policy.fit(data, run_dir=out, resume=resume)


def tune(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    within: int | None = None,
    over: str | Sequence[str] = (),
    trials: int | None = None,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Searches settings with a high validation reward: ``slate tune``, whose report it returns.

    ``over`` is one search space or a list of them, such as
    ``["optimizer.learning_rate=1e-5..1e-3", "method.samples=10|30"]``.
    """
    words = ["tune", "--data", str(data), "--out", str(out)]
    words += [] if within is None else ["--within", str(within)]
    spaces = [over] if isinstance(over, str) else over
    words += [word for one in spaces for word in ("--over", one)]
    words += [] if trials is None else ["--trials", str(trials)]
    # The method comes first: it decides which keys there are.
    for key, value in sorted((settings or {}).items(), key=lambda item: item[0] != "method.kind"):
        told = value if isinstance(value, str) else json.dumps(plain(value, f"settings['{key}']"))
        words += ["--set", f"{key}={told}"]
    return _slate(words)


def compare(
    grid: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    scale: str | None = None,
    files: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Trains a grid of methods and writes the report: ``slate compare``, whose results it returns."""
    words = ["compare", str(grid), "--out", str(out)]
    words += [] if scale is None else ["--scale", scale]
    words += [] if files is None else ["--files", str(files)]
    return _slate(words)


def _slate(words: list[str]) -> dict[str, Any]:
    """Runs the command in a process of its own, and passes on what it prints on stderr.

    Ctrl-C lets it end in order, so that it can go on later.
    """
    said: list[str] = []

    def pass_on(lines: IO[str]) -> None:
        for line in lines:
            sys.stderr.write(line)
            said.append(line)
            del said[:-20]

    # In a session of its own, so that a terminal's Ctrl-C reaches it once, from here.
    with subprocess.Popen(
        [program(), *words, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        if process.stdout is None or process.stderr is None:
            raise RuntimeError("no pipes to the command")
        lines = threading.Thread(target=pass_on, args=(process.stderr,), daemon=True)
        lines.start()
        try:
            report = process.stdout.read()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            # It may have a report to print, for which the pipe is too small.
            process.stdout.read()
            process.wait()
            raise
        code = process.wait()
        lines.join()
    if code:
        problem = next((line.strip() for line in said if line.startswith("error:")), "")
        command = " ".join(["slate", *words])
        raise RuntimeError(f"`{command}` ended with {code}: {problem or ''.join(said).strip()}")
    return dict(json.loads(report))
