"""A reward of one's own in Python: what counts is the rarest hit of a slate, so a slate of nothing but
blockbusters earns little. It is a maximum, not a sum. The function is called once a step.

python examples/python/custom_reward.py LOG.csv USER_COLUMN ITEM_COLUMN
"""

import sys

import numpy as np

from fast_slate import Batch, SlatePolicy


def rarest_hit(batch: Batch, slates: np.ndarray) -> np.ndarray:
    # Items are numbered by falling popularity: a high number is a rare item.
    rarity = np.log2(2.0 + slates)  # [n, K]
    return np.where(batch.hits, rarity, 0.0).max(axis=1)


def main(log: str, user: str, item: str) -> None:
    columns = {"user": user, "item": item}
    usual = SlatePolicy(embeddings="svd", steps=1000).fit(log, run_dir="runs/usual", **columns)
    # The second policy trains on the data that the first one prepared.
    mine = SlatePolicy(steps=1000, reward=rarest_hit)
    mine.fit(f"{usual.run_dir_}/data", run_dir="runs/rarest")
    print(mine.evaluate(against=["runs/usual", "popularity"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
