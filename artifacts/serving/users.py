"""A file of users with made-up histories of a bundle's items: users.py BUNDLE USERS OUT

Each has the items of a user of the bundle, where it has histories, in turn, and three others drawn by rank (item i with a chance
that falls as 1 / i): no two contexts are the same.
"""
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

bundle, users, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
ids = pq.read_table(f"{bundle}/items.parquet")["item_id"].cast(pa.string()).to_numpy(zero_copy_only=False)
histories = pq.read_table(f"{bundle}/histories.parquet")
owner, action = histories["user"].to_numpy(), histories["action"].to_numpy()
starts = np.searchsorted(owner, np.arange(owner.max() + 2))
drawn = np.random.default_rng(0).random((users, 3))
drawn = (np.exp(drawn * np.log(len(ids))) - 1).astype(int)  # log-uniform ranks
lists = []
for user in range(users):
    at = user % (len(starts) - 1)
    lists.append(ids[np.concatenate([action[starts[at]:starts[at + 1]], drawn[user]])].tolist())
pq.write_table(pa.table({"user_id": np.arange(users), "items": pa.array(lists, pa.list_(pa.string()))}), out)
