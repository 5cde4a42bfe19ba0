"""Makes sessions over a large catalogue, prepared, with embeddings of the spectrum that another prepared folder has.

usage: catalogue.py SLATE LIKE ACTIONS OUT      needs: numpy polars safetensors

Actions lie in 200 clusters with norms spread as popularity spreads them; every user stays in one cluster; every action
is in somebody's session. β = (cluster + noise)·s^½ with the singular values s of LIKE, so that only the size is new.
"""
import subprocess, sys
import numpy as np, polars as pl
from safetensors.numpy import load_file

slate, like, actions, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
values = load_file(f"{like}/embeddings.safetensors")["singular_values"]
generator, clusters, latent = np.random.default_rng(0), 200, len(values)

# Users take turns through the actions of a cluster, so that all of them occur, and add some of its first ones.
users, turn, extra = max(15_000, actions // 20), 20, 20
at = (np.arange(users)[:, None] * turn + np.arange(turn)) % actions
start = (at[:, :1] * clusters // actions) * actions // clusters
popular = start + (generator.random((users, extra)) ** 3 * (actions // clusters)).astype(np.int64)
items = np.concatenate([at, np.minimum(popular, actions - 1)], axis=1)
log = pl.DataFrame({"user": np.repeat(np.arange(users), turn + extra), "item": items.ravel()})
log.write_parquet(f"{out}.parquet")


def prepare(beta):
    np.save(f"{out}.npy", beta)
    command = [slate, "prepare", f"{out}.parquet", "--user-column", "user", "--item-column", "item", "--out", out,
               "--embeddings", f"{out}.npy", "--force", "--no-index"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


# The order of the actions is the preparation's; the second one has their embeddings.
prepare(np.ones((actions, 1), np.float32))
item = pl.read_parquet(f"{out}/actions.parquet").sort("action")["item_id"].to_numpy()
cluster = item * clusters // actions
centres = generator.standard_normal((clusters, latent)).astype(np.float32)
beta = generator.standard_normal((actions, latent), np.float32) * 0.6 + 0.8 * centres[cluster]
beta *= np.exp(0.5 * generator.standard_normal((actions, 1), np.float32))
beta *= np.sqrt(values) / np.sqrt(actions)
prepare(beta.astype(np.float32))
