"""What shards change: identical.py FOLDER STEPS USERS

FOLDER has `data`, the bundle `whole` of a run on it, and the same in 1, 2 and 4 shards. Prints a line of JSON for each
number of shards: the largest difference of a score, and how many of the items are others, over the slates of some
users; whether a training through shards ends with the parameters of one in one process.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import ray

from fast_slate import Recommender, SlatePolicy
from fast_slate.ray import ShardedRetriever

work, steps, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
settings = {"method.kind": "lgp", "context.folds": 0, "evaluation.count": 1, "evaluation.patience": 0}


def trained(shards: ShardedRetriever | None) -> tuple[bytes, float]:
    """The parameters after the last step, and the test reward."""
    with tempfile.TemporaryDirectory() as folder:
        policy = SlatePolicy(steps=steps, settings=settings)
        policy.fit(work / "data", run_dir=Path(folder) / "run", shards=shards)
        last = SlatePolicy.load(Path(folder) / "run", checkpoint="last")
        last.save(Path(folder) / "bundle")
        return (Path(folder) / "bundle" / "model.safetensors").read_bytes(), last.evaluate()["reward"][0]


ray.init(num_cpus=2, include_dashboard=False, object_store_memory=500_000_000, log_to_driver=False)
whole = Recommender(work / "whole")
users = list(whole.user_ids_)[:count]
slates = pl.DataFrame(whole.recommend(users=users, k=50, exact=True))
parameters, reward = trained(None)
for shards_of in (1, 2, 4):
    shards = ShardedRetriever(work / str(shards_of) / "whole")
    found = pl.DataFrame(Recommender(work / "whole", shards=shards).recommend(users=users, k=50))
    first, second = trained(shards), trained(shards)
    shards.close()
    row = {
        "actions": len(whole.embeddings_),
        "shards": shards_of,
        "slates": len(users),
        "other_items": int((slates["item_id"] != found["item_id"]).sum()),
        "score_difference": float(np.abs(slates["score"].to_numpy() - found["score"].to_numpy()).max()),
        "steps": steps,
        "repeats": first == second,
        "parameters_of_one_process": first[0] == parameters,
        "reward_difference": abs(first[1] - reward),
    }
    print(json.dumps(row), flush=True)
