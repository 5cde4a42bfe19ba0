"""Compares `tower.onnx` of a bundle in onnxruntime with what `slate` answers from that bundle.

pip install numpy onnx onnxruntime pyarrow safetensors usearch; python onnx_check.py BUNDLE [slate]
"""
import subprocess, sys, tempfile
from pathlib import Path

import numpy as np
import onnx, onnxruntime
import pyarrow as pa, pyarrow.parquet as pq

from recommend import Bundle

folder, slate = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "slate"
onnx.checker.check_model(str(folder / "tower.onnx"), full_check=True)
session = onnxruntime.InferenceSession(folder / "tower.onnx", providers=["CPUExecutionProvider"])

# What 200 people would be known by who have five random items each.
bundle, random = Bundle(folder), np.random.default_rng(0)
people = [random.choice(len(bundle.beta), 5, replace=False) for _ in range(200)]
contexts = np.array(
    [np.concatenate([bundle.encode(e, one) for e in bundle.about["encoders"]]) for one in people],
    dtype=np.float32,
)
h = session.run(["h"], {"context": contexts})[0]
alone = session.run(["h"], {"context": contexts[:1]})[0]
assert np.allclose(alone, h[:1], atol=1e-5 * np.linalg.norm(alone)), "h depends on the batch"

# A score is the inner product of h and an item's vector, so the scores of enough items are h.
k = min(len(bundle.beta), 1000)
with tempfile.TemporaryDirectory() as at:
    users = pa.table({"user_id": range(len(people)), "context": list(contexts)})
    pq.write_table(users, f"{at}/users.parquet")
    asked = [slate, "recommend", folder, "--users", f"{at}/users.parquet", "--exact", "-k", str(k)]
    subprocess.run([*asked, "--out", f"{at}/slates.parquet"], check=True)
    slates = pq.read_table(f"{at}/slates.parquet")
items = np.array([bundle.actions[str(item)] for item in slates["item_id"].to_pylist()])
worst = np.zeros(2)
for h, items, scores in zip(h, items.reshape(-1, k), slates["score"].to_numpy().reshape(-1, k)):
    beta = bundle.beta[items].astype(float)
    query, _, rank, _ = np.linalg.lstsq(beta, scores.astype(float), rcond=None)
    of_scores = np.abs(beta @ h - scores) / np.linalg.norm(beta, axis=1)
    of_query = np.linalg.norm(query - h) if rank == len(h) else np.nan  # nan: too few items
    worst = np.maximum(worst, np.array([of_scores.max(), of_query]) / np.linalg.norm(h))
print(f"{len(people)} contexts: h is off by {worst[1]:.1e} |h|, scores by {worst[0]:.1e} |h||beta|")
assert worst[0] < 1e-5, "tower.onnx is not the tower of this bundle"
