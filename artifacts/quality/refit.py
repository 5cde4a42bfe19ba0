"""What a refit earns of users, or of latest items, that nothing of the run has seen, beside the run itself.

A fifth of the users of each log is set aside, with half of their items observed, or with --time COLUMN the last
fifth of everybody's items. `fit` sees the rest: it splits it again, chooses, and does the same again on all of it.
EASE, with each λ that --ease names, is fitted on all of the rest.

usage: python refit.py OUT.jsonl LOG... [--user COLUMN] [--item COLUMN] [--time COLUMN] [--seeds 0 1 2] [--within SECONDS]
       [--ease 100 200 500]
needs fast_slate, numpy, polars, scipy
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from fast_slate import SlatePolicy
from scipy import sparse
from scipy.linalg import lapack

K = 5
HALVES = 4


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("--user", default="user")
    parser.add_argument("--item", default="item")
    parser.add_argument("--time")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--within", type=int, default=180, help="seconds of the league")
    parser.add_argument("--ease", type=float, nargs="*", default=[], help="values of λ")
    return parser.parse_args()


def read(path, columns):
    """The pairs of a log, each once, of users with five items, as text."""
    table = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)
    table = table.select(**{name: pl.col(column) for name, column in columns.items() if column})
    table = table.with_columns(pl.col("user", "item").cast(pl.String))
    if "time" in table.columns:
        table = table.sort("time", maintain_order=True)
    table = table.unique(["user", "item"], keep="first", maintain_order=True)
    return table.filter(pl.len().over("user") >= 5)


def divided(table, draw):
    """What `fit` sees, and of each question what is observed and what is hidden."""
    items = {user: rows["item"].to_list() for (user,), rows in table.group_by("user", maintain_order=True)}
    if "time" in table.columns:
        last = {user: max(1, round(len(of) / 5)) for user, of in items.items()}
        place = pl.int_range(pl.len()).over("user")
        ends = pl.len().over("user") - pl.col("user").replace_strict(last)
        asked = [(of[: -last[user]], set(of[-last[user] :]), user) for user, of in items.items()]
        return table.filter(place < ends), asked
    users = sorted(items)
    aside = set(draw.permutation(users)[: len(users) // 5].tolist())
    asked = []
    for user in sorted(aside):
        for _ in range(HALVES):
            of = draw.permutation(items[user]).tolist()
            asked.append((of[: len(of) // 2], set(of[len(of) // 2 :]), user))
    return table.filter(~pl.col("user").is_in(aside)), asked


def rewards(policy, asked):
    """The discounted reward of each person's slate, the mean over the questions."""
    known = {str(item) for item in policy.item_ids_}
    slates = policy.recommend(items=[[item for item in of if item in known] for of, _, _ in asked], k=K)
    return earned(zip(slates["user"], slates["rank"], slates["item_id"], strict=True), asked)


def inverse(gram):
    """The inverse of a positive definite matrix, in its place."""
    factor, failed = lapack.spotrf(gram.T, overwrite_a=True)
    upper, failed_too = lapack.spotri(factor, overwrite_c=True)
    assert not failed and not failed_too
    for first in range(0, len(upper), 1000):
        rows = slice(first, first + 1000)
        upper[rows, :first] = upper[:first, rows].T
        block = upper[rows, rows]
        block[:] = np.triu(block) + np.triu(block, 1).T
    return upper.T


def ease(seen, asked, ridge):
    """The same of EASE (Steck, WWW 2019)."""
    users, rows = np.unique(seen["user"].to_numpy().astype(str), return_inverse=True)
    items, columns = np.unique(seen["item"].to_numpy().astype(str), return_inverse=True)
    pairs = sparse.csr_array((np.ones(len(rows), np.float32), (rows, columns)))
    gram = (pairs.T @ pairs).toarray()
    gram[np.diag_indices_from(gram)] += ridge
    weights = inverse(gram)
    weights /= -np.diag(weights).copy()
    np.fill_diagonal(weights, 0)
    number = {item: at for at, item in enumerate(items.tolist())}

    def slates():
        for at, (of, _, _) in enumerate(asked):
            known = [number[item] for item in of if item in number]
            scores = weights[known].sum(axis=0)
            scores[known] = -np.inf
            best = np.argpartition(-scores, K)[:K]
            for rank, item in enumerate(best[np.argsort(-scores[best])], 1):
                yield at, rank, items[item]

    return earned(slates(), asked)


def earned(shown, asked):
    earned = np.zeros(len(asked))
    for at, rank, item in shown:
        earned[int(at)] += (str(item) in asked[int(at)][1]) / np.log2(int(rank) + 1)
    people, of = np.unique([user for _, _, user in asked], return_inverse=True)
    return np.bincount(of, earned) / np.bincount(of, minlength=len(people))


def estimate(values):
    return {"mean": float(values.mean()), "se": float(values.std(ddof=1) / len(values) ** 0.5)}


def main():
    given = arguments()
    rows = []
    for path in given.logs:
        table = read(path, {"user": given.user, "item": given.item, "time": given.time})
        for seed in given.seeds:
            seen, asked = divided(table, np.random.default_rng(seed))
            settings = {"prepare.within": given.within}
            if given.time:
                # Everybody who is asked about has a vector of their own items.
                settings |= {"prepare.split": "temporal", "prepare.min_user_interactions": 4}
            with tempfile.TemporaryDirectory() as folder:
                started = time.monotonic()
                policy = SlatePolicy(seed=seed, settings=settings, refit=False)
                columns = {"user": "user", "item": "item", "time": "time" if given.time else None}
                policy.fit(seen, run_dir=Path(folder) / "run", **columns)
                before, trained = rewards(policy, asked), time.monotonic()
                policy.set_params(refit=True).fit(run_dir=Path(folder) / "run", resume=True)
                after, refitted = rewards(policy, asked), time.monotonic()
            row = {
                "log": f"{path.parent.name}/{path.name}",
                "split": "temporal" if given.time else "random",
                "seed": seed,
                "people": len(before),
                "run": estimate(before),
                "refit": estimate(after),
                "difference": estimate(after - before),
                "seconds": [round(trained - started), round(refitted - trained)],
            }
            row["percent"] = 100 * row["difference"]["mean"] / row["run"]["mean"]
            rows.append(row)
            for ridge in [None, *given.ease]:
                if ridge is not None:
                    other = ease(seen, asked, ridge)
                    row[f"ease:{ridge:g}"] = {**estimate(other), "refit minus it": estimate(after - other)}
                given.out.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
