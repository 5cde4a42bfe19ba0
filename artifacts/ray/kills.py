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
    """Kills one of the actors, ten times, once in a while of `seconds`."""

    def __init__(self, actors: list, seconds: float) -> None:
        super().__init__(daemon=True)
        self.actors, self.seconds, self.hits, self.over = actors, seconds, 0, threading.Event()

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


def compared(what: str, undisturbed, disturbed) -> None:
    started = time.perf_counter()
    wanted = undisturbed()
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    found, hits = disturbed()
    row = {"what": what, "kills": hits, "same": found == wanted}
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


def train(name: str, kills: bool = False):
    killer = Killer(shards._actors, 6)
    if kills:
        killer.start()
    SlatePolicy(steps=steps, settings=settings).fit(work / "data", run_dir=scratch / name, shards=shards)
    killer.over.set()
    found = parameters(scratch / name)
    return (found, killer.hits) if kills else found


compared("training", lambda: train("whole"), lambda: train("killed", True))

users = pl.DataFrame({"user_id": Recommender(bundle).user_ids_})
for copy in range(max(1, steps // 50)):
    (scratch / "users").mkdir(exist_ok=True)
    users.write_parquet(scratch / "users" / f"{copy}.parquet")


def batch(name: str, kills: bool = False):
    killer = Killer(shards._actors, 6)
    if kills:
        killer.start()
    recommend(bundle, str(scratch / "users"), str(scratch / name), k=20, batch_size=1024, shards=shards)
    killer.over.set()
    found = pl.from_arrow(pq.read_table(scratch / name)).sort("user", "rank", "item_id").hash_rows().sum()
    return (found, killer.hits) if kills else found


compared("batch", lambda: batch("slates"), lambda: batch("slates-killed", True))
shards.close()

log = {"log": str(work / "log"), "user": "user_id", "item": "item_id", "latent_dim": 64, "passes": 6, "actors": 2}


def decompose(name: str, kills: bool = False):
    killers = []

    def started(actors: list) -> None:
        killers.append(Killer(actors, 10))
        if kills:
            killers[0].start()

    embed(**log, out=scratch / f"{name}.safetensors", started=started)
    killers[0].over.set()
    found = (scratch / f"{name}.safetensors").read_bytes()
    return (found, killers[0].hits) if kills else found


compared("embedding", lambda: decompose("whole"), lambda: decompose("killed", True))
