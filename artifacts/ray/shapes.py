"""Vectors by actors beside those of one process, of the same users: shapes.py FOLDER ACTORS

FOLDER has `log.parquet`, and `data`, which was prepared of it with an SVD. The training users' rows are
decomposed by actors, and the log is prepared and trained for a step with either vectors. Prints a line of JSON: how much of
the energy both capture, the validation reward of the start, seconds, and the greatest memory of an actor (what it
asked for itself, without the shared object store).
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import ray

from fast_slate.ray import embed

folder, actors = Path(sys.argv[1]), int(sys.argv[2])
slate = os.environ["SLATE"]
data, vectors = folder / "data", folder / "vectors.safetensors"


def captured(path: Path) -> float:
    """The share of the energy that the vectors hold."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])

    def tensor(name: str) -> np.ndarray:
        first, last = header[name]["data_offsets"]
        return np.frombuffer(raw[start + first : start + last], np.float32).astype(np.float64)

    return float((tensor("singular_values") ** 2).sum() / tensor("energy")[0])


def begun(data: Path, run: Path) -> float:
    """The validation reward of the policy before training."""
    subprocess.run(["rm", "-rf", run], check=True)
    options = ["--steps", "1", "--set", "context.folds=0", "--set", "context.popularity_power=0", "--set", "embedding.power=0.5"]
    subprocess.run([slate, "train", "--data", data, "--out", run, *options], check=True, stdout=sys.stderr)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return next(row["reward"] for row in rows if (row["kind"], row["step"], row["split"]) == ("evaluation", 0, "validation"))


class Memory(threading.Thread):
    """The greatest anonymous memory of any actor, in KiB, by the names that Ray gives its processes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.ended = 0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.2):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if not path.read_bytes().startswith(b"ray::Users"):
                        continue
                    status = (path.parent / "status").read_text()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                self.most = max(self.most, int(status.split("RssAnon:")[1].split()[0]))


(folder / "train").mkdir(exist_ok=True)
pairs = pl.scan_parquet(data / "interactions.parquet").filter(pl.col("split").cast(pl.String) == "train")
pairs = pairs.join(pl.scan_parquet(data / "actions.parquet"), on="action").select("context", "item_id")
pairs.sink_parquet(folder / "train" / "rows.parquet")

ray.init(num_cpus=2, include_dashboard=False, object_store_memory=2_000_000_000, log_to_driver=False)
memory = Memory()
started = time.perf_counter()
memory.start()
embed(str(folder / "train"), vectors, user="context", item="item_id", latent_dim=100, actors=actors)
seconds = time.perf_counter() - started
memory.ended.set()
ray.shutdown()
ids = ["--user-column", "user_id", "--item-column", "item_id"]
imported = ["--embeddings", vectors, "--embedding-ids", vectors.with_suffix(".ids"), "--missing-embeddings", "zero"]
subprocess.run(
    [slate, "prepare", folder / "log.parquet", *ids, *imported, "--no-index", "--out", folder / "imported", "--force"],
    check=True,
    stdout=sys.stderr,
)
row = {
    "shape": folder.name,
    "pairs": pl.scan_parquet(folder / "train" / "rows.parquet").select(pl.len()).collect().item(),
    "actors": actors,
    "seconds": round(seconds, 1),
    "actor_gib": round(memory.most / 2**20, 2),
    "captured": [captured(data / "embeddings.safetensors"), captured(vectors)],
    "reward": [begun(data, folder / "run"), begun(folder / "imported", folder / "run-imported")],
}
print(json.dumps(row), flush=True)
