"""``python -m fast_slate.ray train CONFIG``: trains, or goes on with, a run in shared storage."""

from __future__ import annotations

import argparse
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import ray

from .._interactions import is_prepared
from ..policy import SlatePolicy
from ._shards import ShardedRetriever
from ._storage import Storage

_KEYS = {"data", "storage", "shards", "policy", "settings"}

_EXAMPLE = """
data = "/shared/data"                # a prepared folder
storage = "s3://bucket/runs/first"   # or a folder; the run is kept here, and goes on from here

[policy]                             # parameters of SlatePolicy
slate_size = 5
steps = 3000

[settings]                           # any other setting, by its dotted key
"method.samples" = 30

[shards]                             # optional: parameters of ShardedRetriever
bundle = "/shared/bundles/first"
"""


def _read(path: Path) -> dict[str, Any]:
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    if unknown := sorted(set(config) - _KEYS):
        raise ValueError(f"{path}: no key `{unknown[0]}`; there are {', '.join(sorted(_KEYS))}")
    for key in ("data", "storage"):
        if not isinstance(config.get(key), str):
            raise ValueError(f'{path}: expected {key} = "…", found {config.get(key)!r}')
    return config


def train(config: dict[str, Any]) -> SlatePolicy:
    """Trains as ``config`` says; at each evaluation the run is stored."""
    if not is_prepared(config["data"]):
        raise ValueError(f"data: expected a folder that `slate prepare` wrote, found {config['data']}")
    storage = Storage(config["storage"])
    policy = SlatePolicy(**config.get("policy", {}), settings=config.get("settings"))
    shards = ShardedRetriever(**config["shards"]) if "shards" in config else None
    with tempfile.TemporaryDirectory(prefix="fast-slate-") as folder:
        run = Path(folder) / "run"
        storage.claim()
        resume = storage.fetch(run)

        def kept(content: dict[str, Any]) -> None:
            if content["kind"] == "evaluation":
                storage.store(run, {"run.lock"})

        # A run that goes on refuses other data than it began with.
        policy.fit(config["data"], run_dir=run, resume=resume, shards=shards, callback=kept)
        storage.store(run, {"run.lock"})
    return policy


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m fast_slate.ray",
        epilog=f"CONFIG is TOML:\n{_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("train", help="train, or go on with, a run in shared storage")
    command.add_argument("config", type=Path, metavar="CONFIG")
    arguments = parser.parse_args()
    try:
        config = _read(arguments.config)
        ray.init(log_to_driver=False, ignore_reinit_error=True)
        policy = train(config)
    except (OSError, TypeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    last = policy.history_.to_dict()
    print(f"{config['storage']}: step {last['step'][-1]}, reward {last['reward'][-1]:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
