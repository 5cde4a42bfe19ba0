"""Kills a shard with −9 ten times at random moments of a training, a batch and a decomposition: kills.py WORK STEPS

Each must end as the undisturbed one does. A line of JSON each: how many of the kills hit between the beginning
and the end, whether the results are the same, and the seconds of both.
"""

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import ray

from fast_slate import Recommender, SlatePolicy
from fast_slate.ray import ShardedRetriever, embed, recommend

work, steps = Path(sys.argv[1]), int(sys.argv[2])
KILLS = 10
dice = random.Random(0)


class Killer(threading.Thread):
    """Kills one of the actors, ten times, once in a while of about `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(daemon=True)
        self.seconds, self.actors, self.hits, self.over = seconds, [], 0, threading.Event()

    def begin(self, actors: list) -> None:
        self.actors = actors
        self.start()

    def run(self) -> None:
        for _ in range(KILLS):
            if self.over.wait(dice.uniform(0.2, 1.8) * self.seconds):
                return
            try:
                pid = ray.get(dice.choice(self.actors).process.remote(), timeout=60)
            except ray.exceptions.RayError:
                return
            if not self.over.is_set():
                os.kill(pid, signal.SIGKILL)
                self.hits += 1


def compared(what: str, job: Callable[[str, Callable[[list], object]], object]) -> None:
    """What a job returns, undisturbed and killed; it says what its actors are as soon as it has them."""
    started = time.perf_counter()
    wanted = job(f"{what}-whole", lambda actors: None)
    seconds = time.perf_counter() - started
    killer = Killer(seconds / KILLS)
    started = time.perf_counter()
    found = job(f"{what}-killed", killer.begin)
    killer.over.set()
    row = {"what": what, "kills": killer.hits, "same": found == wanted}
    row |= {"seconds": round(seconds, 1), "seconds_killed": round(time.perf_counter() - started, 1)}
    print(json.dumps(row), flush=True)


def parameters(run: Path) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        SlatePolicy.load(run, checkpoint="last").save(Path(folder) / "bundle")
        return (Path(folder) / "bundle" / "model.safetensors").read_bytes()


ray.init(num_cpus=2, include_dashboard=False, object_store_memory=1_000_000_000, log_to_driver=False)
bundle = work / "2" / "whole"
scratch = Path(tempfile.mkdtemp())
shards = ShardedRetriever(bundle, timeout=300)
settings = {"context.folds": 0, "evaluation.count": 2, "evaluation.patience": 0}


def train(name: str, started: Callable[[list], object]) -> bytes:
    started(shards._actors)
    SlatePolicy(steps=steps, settings=settings).fit(work / "data", run_dir=scratch / name, shards=shards)
    return parameters(scratch / name)


compared("training", train)

users = pl.DataFrame({"user_id": Recommender(bundle).user_ids_})
(scratch / "users").mkdir()
for copy in range(max(1, steps // 600)):
    users.write_parquet(scratch / "users" / f"{copy}.parquet")


def batch(name: str, started: Callable[[list], object]) -> int:
    started(shards._actors)
    recommend(bundle, str(scratch / "users"), str(scratch / name), k=20, batch_size=1024, shards=shards)
    return pl.from_arrow(pq.read_table(scratch / name)).sort("user", "rank", "item_id").hash_rows().sum()


compared("batch", batch)
shards.close()


def decompose(name: str, started: Callable[[list], object]) -> bytes:
    out = scratch / f"{name}.safetensors"
    embed(str(work / "log"), out, user="user_id", item="item_id", latent_dim=256, passes=6, actors=2, started=started)
    return out.read_bytes()


compared("embedding", decompose)
