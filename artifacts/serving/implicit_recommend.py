"""Slates of the same factors from a bundle and from `implicit`: implicit_recommend.py SLATE BUNDLE BUNDLE50 [--out FILE]

The second bundle is the same policy with an index for slates of 50. One user at a time and 5 000 at once, K = 5 and 50; `implicit` searches exactly, with the same number of threads and its best
batch size of three. Each is measured three times, in turn; medians.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as `implicit` asks for: its threads are its own

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp
from implicit.als import AlternatingLeastSquares

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/python"))
from recommend import Bundle

parser = argparse.ArgumentParser()
parser.add_argument("slate")
parser.add_argument("bundle", type=Path)
parser.add_argument("long", type=Path)
parser.add_argument("--out", type=Path)
arguments = parser.parse_args()

bundle = Bundle(arguments.bundle)
histories = pq.read_table(arguments.bundle / "histories.parquet")
rows, cols = histories["user"].to_numpy(), histories["action"].to_numpy()
users = rows.max() + 1
seen = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, cols)), shape=(users, len(bundle.beta)))
of = [seen.indices[seen.indptr[user]:seen.indptr[user + 1]] for user in range(users)]
contexts = [np.concatenate([bundle.encode(encoder, known) for encoder in bundle.about["encoders"]]) for known in of]
h = np.stack([bundle.query(context) for context in contexts]).astype(np.float32)

threads = os.cpu_count()
model = AlternatingLeastSquares(factors=h.shape[1], num_threads=threads)
model.user_factors, model.item_factors = h, np.ascontiguousarray(bundle.beta)
some = np.arange(0, users, max(1, users // 5000))[:5000]


def one_by_one(k):
    times = []
    for user in some[:500]:
        began = time.perf_counter()
        model.recommend(user, seen[user], N=k)
        times.append(1e3 * (time.perf_counter() - began))
    return median(times)


def at_once(k, size):
    began = time.perf_counter()
    for first in range(0, len(some), size):
        batch = some[first:first + size]
        model.recommend(batch, seen[batch], N=k)
    return len(some) / (time.perf_counter() - began)


def ours(k):
    folder = arguments.bundle if k == 5 else arguments.long
    command = [arguments.slate, "bench", "slates", str(folder), "--users", "5000", "-k", str(k), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


found = {}
for k in (5, 50):
    theirs, sizes, mine = [], {size: [] for size in (100, 1000, 5000)}, []
    for _ in range(3):
        theirs.append(one_by_one(k))
        for size in sizes:
            sizes[size].append(at_once(k, size))
        mine.append(ours(k))
    best = max(median(rates) for rates in sizes.values())
    found[k] = {"implicit": {"one_ms": median(theirs), "per_second": best}}
    for at, search in enumerate(search["search"] for search in mine[0]["searches"]):
        runs = [run["searches"][at] for run in mine]
        one = median(run["milliseconds"][0] for run in runs)
        rate = median(run["slates_per_second"] for run in runs)
        found[k][search] = {"one_ms": one, "per_second": rate, "recall": runs[0]["recall"],
                            "one_times": median(theirs) / one, "all_times": rate / best}
text = json.dumps({"users": len(some), "threads": threads, "shape": list(bundle.beta.shape), "k": found})
if arguments.out:
    arguments.out.write_text(text + "\n")
print(text)
