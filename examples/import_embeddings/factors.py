"""Makes item vectors with the ALS of `implicit`, from the training users of DATA.

    python factors.py DATA

writes beta.npy, one row an item, and ids.txt, the ids of these rows, one a line.
Needs: pip install implicit numpy scipy polars
"""

import sys
from pathlib import Path

import numpy as np
import polars as pl
import scipy.sparse as sp
from implicit.als import AlternatingLeastSquares

data = Path(sys.argv[1])
# Vectors must not have seen the users on whom they are judged.
train = pl.read_parquet(data / "interactions.parquet").filter(pl.col("split") == "train")
ids = pl.read_parquet(data / "actions.parquet")["item_id"].to_numpy()
users, items = train["context"].to_numpy(), train["action"].to_numpy()
matrix = sp.csr_matrix((np.ones(len(train), np.float32), (users, items)))

model = AlternatingLeastSquares(factors=64, regularization=1.0, alpha=11.0, random_state=0)
model.fit(matrix, show_progress=False)

# Rows may be in any order: the ids say which item each row is. Only items that a training user
# touched have one.
rows = np.random.default_rng(0).permutation(len(model.item_factors))
np.save("beta.npy", model.item_factors[rows])
np.savetxt("ids.txt", ids[rows], fmt="%s")
