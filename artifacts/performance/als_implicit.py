"""ALS of `slate prepare` and of the Python library `implicit`, side by side at equal settings.

    python als_implicit.py SLATE LOG [--factors 64 100] [--user-column U --item-column I] [--out FILE]

Needs: pip install implicit numpy scipy polars safetensors. Prints a Markdown table and writes the raw
numbers to FILE: seconds (the median of the repetitions, which alternate) and the discounted reward at
K = 5 of the test users, observed items left out, by the same fold-in and ranking in numpy for
both.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as `implicit` asks for: its threads are its own

import numpy as np
import polars as pl
import scipy.sparse as sp
from implicit.als import AlternatingLeastSquares
from safetensors.numpy import load_file

K = 5


def sets(table, users, items):
    """Sparse 0/1 rows of the users that the table has."""
    rows, cols = table["context"].to_numpy(), table["action"].to_numpy()
    matrix = sp.csr_matrix((np.ones(len(table), np.float32), (rows, cols)), shape=(users, items))
    return matrix[np.unique(rows)]


def reward(beta, observed, hidden, regularization, confidence):
    """Mean of Σ_k 1[a_k ∈ Y] / 2^(k−1), and its standard error."""
    beta = beta.astype(np.float64)
    gram = beta.T @ beta + regularization * np.eye(beta.shape[1])
    rewards = []
    for user in range(observed.shape[0]):
        seen = observed.indices[observed.indptr[user] : observed.indptr[user + 1]]
        own = beta[seen]
        x = np.linalg.solve(gram + confidence * own.T @ own, (1 + confidence) * own.sum(axis=0))
        scores = beta @ x
        scores[seen] = -np.inf
        top = np.argpartition(-scores, K)[:K]
        top = top[np.argsort(-scores[top])]
        wanted = hidden.indices[hidden.indptr[user] : hidden.indptr[user + 1]]
        rewards.append((np.isin(top, wanted) / 2.0 ** np.arange(K)).sum())
    return np.mean(rewards), np.std(rewards) / np.sqrt(len(rewards))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("slate")
    parser.add_argument("log")
    parser.add_argument("--user-column")
    parser.add_argument("--item-column")
    parser.add_argument("--factors", type=int, nargs="+", default=[64, 100])
    parser.add_argument("--regularization", type=float, default=1.0)
    parser.add_argument("--confidence", type=float, default=10.0)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    columns = []
    if args.user_column:
        columns = ["--user-column", args.user_column, "--item-column", args.item_column]

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        prepare = [args.slate, "prepare", args.log, *columns, "--out", data, "--force", "--json"]
        prepare += ["--no-index", "--embeddings", "als", "--iterations", str(args.iterations)]
        prepare += ["--regularization", str(args.regularization)]
        prepare += ["--confidence", str(args.confidence)]
        environment = os.environ | {"RAYON_NUM_THREADS": str(args.threads)}

        def ours(factors):
            # With the embeddings gone, sessions are taken over and embeddings made again.
            (data / "embeddings.safetensors").unlink(missing_ok=True)
            command = [*prepare, "--latent-dim", str(factors)]
            done = subprocess.run(command, env=environment, check=True, capture_output=True)
            return json.loads(done.stdout)["phases"]["embeddings"]

        ours(2)
        table = pl.read_parquet(data / "interactions.parquet")
        users = table["context"].max() + 1
        items = len(pl.read_parquet(data / "actions.parquet"))
        train = sets(table.filter(pl.col("split") == "train"), users, items)
        test = table.filter(pl.col("split") == "test")
        observed = sets(test.filter(~pl.col("hidden")), users, items)
        hidden = sets(test.filter(pl.col("hidden")), users, items)

        def theirs(factors):
            model = AlternatingLeastSquares(
                factors=factors,
                regularization=args.regularization,
                alpha=1 + args.confidence,  # it weighs an interaction by alpha, not by 1 + alpha
                iterations=args.iterations,
                num_threads=args.threads,
                random_state=0,
            )
            started = time.perf_counter()
            model.fit(train, show_progress=False)
            return time.perf_counter() - started, model.item_factors

        print(f"{train.shape[0]} training users, {items} items, {train.nnz} interactions; λ = "
              f"{args.regularization:g}, α = {args.confidence:g}, {args.iterations} iterations, "
              f"{args.threads} threads\n")
        print("| L | slate, s | implicit, s | ratio | slate, reward | implicit, reward |")
        print("|---|---|---|---|---|---|")
        raw = []
        for factors in args.factors:
            seconds = {"ours": [], "theirs": []}
            for _ in range(args.repetitions):
                seconds["ours"].append(ours(factors))
                spent, beta = theirs(factors)
                seconds["theirs"].append(spent)
            ours_median, theirs_median = (median(times) for times in seconds.values())
            found = load_file(data / "embeddings.safetensors")["beta"]
            weights = (args.regularization, args.confidence)
            rewards = [reward(it, observed, hidden, *weights) for it in (found, beta)]
            raw.append({"latent_dim": factors, "seconds": seconds, "rewards": rewards})
            cells = [f"{mean:.4f} ± {error:.4f}" for mean, error in rewards]
            print(f"| {factors} | {ours_median:.2f} | {theirs_median:.2f} | "
                  f"{theirs_median / ours_median:.1f} | {cells[0]} | {cells[1]} |", flush=True)
        if args.out:
            named = ("regularization", "confidence", "iterations", "threads")
            settings = {name: getattr(args, name) for name in named}
            args.out.write_text(json.dumps({**settings, "cells": raw}, default=float, indent=1) + "\n")


if __name__ == "__main__":
    main()
