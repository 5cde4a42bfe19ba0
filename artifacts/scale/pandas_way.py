"""Prepares a log of interactions the way the experiments before this project did (FOPO's
procedure): pandas reads and filters, scipy's `svds` makes the embeddings, FAISS the index. For
comparison with `slate prepare --preset paper` on the same file and machine.

    python3 pandas_way.py LOG.csv OUT [--latent-dim 100]
"""

import argparse
import os
import time

import faiss
import numpy as np
import pandas as pd
import scipy.sparse as sparse
from scipy.sparse.linalg import svds

arguments = argparse.ArgumentParser()
arguments.add_argument("log")
arguments.add_argument("out")
arguments.add_argument("--latent-dim", type=int, default=100)
arguments = arguments.parse_args()
os.makedirs(arguments.out, exist_ok=True)
random = np.random.default_rng(0)
clock = started = time.monotonic()


def phase(name):
    global clock
    now = time.monotonic()
    print(f"{name:10} {now - clock:7.1f} s", flush=True)
    clock = now


log = pd.read_csv(arguments.log, usecols=["user_id", "item_id"])
phase("read")

log = log.drop_duplicates()
log = log[log.groupby("user_id")["item_id"].transform("size") >= 20]
users = log["user_id"].astype("category").cat.codes.to_numpy()
items, item_ids = pd.factorize(log["item_id"], sort=True)
num_users, num_items = users.max() + 1, len(item_ids)
# Each user's items in random order; the first half is observed.
order = np.lexsort((random.random(len(users)), users))
users, items = users[order], items[order]
counts = np.bincount(users, minlength=num_users)
rank = np.arange(len(users)) - np.repeat(np.cumsum(counts) - counts, counts)
observed = rank < (counts // 2)[users]
shuffled = random.permutation(num_users)
validation = np.zeros(num_users, dtype=bool)
validation[shuffled[: num_users // 10]] = True
phase("split")

training = ~validation[users]
rows = np.cumsum(~validation) - 1
matrix = sparse.csr_matrix(
    (np.ones(training.sum(), dtype=np.float32), (rows[users[training]], items[training])),
    shape=((~validation).sum(), num_items),
)
_, values, vt = svds(matrix, k=arguments.latent_dim)
beta = np.ascontiguousarray(vt[::-1].T.astype(np.float32))
phase("svds")

index = faiss.IndexHNSWFlat(arguments.latent_dim, 32, faiss.METRIC_INNER_PRODUCT)
index.add(beta)
phase("index")

np.savez(f"{arguments.out}/sessions.npz", users=users, items=items, observed=observed,
         validation=validation)
np.save(f"{arguments.out}/beta.npy", beta)
np.save(f"{arguments.out}/singular_values.npy", values[::-1])
faiss.write_index(index, f"{arguments.out}/index.faiss")
phase("written")
print(f"{'all':10} {time.monotonic() - started:7.1f} s")
