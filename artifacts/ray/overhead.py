"""Seconds of a search, a training step and a batch in one process and in shards: overhead.py WORK STEPS COPIES

A line of JSON each. A search has a step's queries, 32 of them, for 100 items each; its parts are the
fan-out (a call of the actors that searches nothing), the search of the slowest shard and the merge.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import ray

from fast_slate import Recommender, SlatePolicy
from fast_slate.ray import ShardedRetriever, recommend

work, steps, copies = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
TURNS = 50
# Shards search exactly, and so does one process beside them.
settings = {"method.kind": "lgp", "context.folds": 0, "evaluation.count": 1, "evaluation.patience": 0}


def milliseconds(call) -> float:
    """The median of several turns."""
    times = []
    for _ in range(TURNS):
        started = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - started))
    return round(statistics.median(times), 3)


def said(**row: object) -> None:
    print(json.dumps(row), flush=True)


def trained(shards: ShardedRetriever | None) -> None:
    """Milliseconds of a step, beside the same run of a tenth of the steps."""
    seconds = []
    for count in (steps // 10, steps):
        policy = SlatePolicy(steps=count, settings=settings)
        with tempfile.TemporaryDirectory() as folder:
            policy.fit(work / "data", run_dir=Path(folder) / "run", shards=shards)
        rows = policy.history_.to_dict()
        seconds.append(rows["seconds"][-1])
    step = 1e3 * (seconds[1] - seconds[0]) / (steps - steps // 10)
    said(what="step", shards=0 if shards is None else len(shards.folders), milliseconds=round(step, 3))


started = time.perf_counter()
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=500_000_000, log_to_driver=False)
said(what="ray.init", seconds=round(time.perf_counter() - started, 2))

whole = Recommender(work / "whole")
beta = whole.embeddings_
latent = np.ascontiguousarray(beta[:: max(1, len(beta) // 32)][:32])
starts, none = np.zeros(len(latent) + 1, np.int64), np.zeros(0, np.int32)
native = whole._asked()
said(what="search", shards=0, milliseconds=milliseconds(lambda: native.search(latent, 100, starts, none)))
trained(None)
for count in (1, 2, 4):
    shards = ShardedRetriever(work / str(count) / "whole")
    shards(latent, 100, starts, none)
    said(
        what="search",
        shards=count,
        milliseconds=milliseconds(lambda: shards(latent, 100, starts, none)),
        fan_out=milliseconds(lambda: shards(latent[:0], 100, starts[:1], none)),
    )
    trained(shards)
    shards.close()

users = pl.DataFrame({"user_id": whole.user_ids_})
with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "users").mkdir()
    for copy in range(copies):
        users.write_parquet(Path(folder) / "users" / f"{copy}.parquet")
    rows = copies * len(users)
    started = time.perf_counter()
    for _ in range(copies):
        whole.recommend(users["user_id"], k=50)
    said(what="batch", workers=0, users=rows, users_per_second=round(rows / (time.perf_counter() - started)))
    started = time.perf_counter()
    recommend(work / "whole", str(Path(folder) / "users"), str(Path(folder) / "out"), k=50)
    said(what="batch", workers=2, users=rows, users_per_second=round(rows / (time.perf_counter() - started)))
