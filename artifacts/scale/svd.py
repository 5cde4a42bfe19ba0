"""Compares the embeddings of a prepared folder with SciPy's truncated SVD of the same matrix.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install numpy scipy polars safetensors
    slate prepare LOG --out FOLDER --no-index
    /tmp/v/bin/python artifacts/scale/svd.py FOLDER
"""

import argparse
import time
from pathlib import Path

import numpy as np
import polars as pl
from safetensors.numpy import load_file
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import svds

GAP = 0.05  # Relative gap of singular values above which a leading subspace is well determined.


def training_matrix(folder: Path) -> csr_matrix:
    """The training contexts' observed and hidden interactions, one row for each context."""
    table = pl.read_parquet(folder / "interactions.parquet").filter(pl.col("split") == "train")
    actions = pl.scan_parquet(folder / "actions.parquet").select(pl.len()).collect().item()
    _, rows = np.unique(table["context"].to_numpy(), return_inverse=True)
    ones = np.ones(len(rows))
    return csr_matrix((ones, (rows, table["action"].to_numpy())), (rows.max() + 1, actions))


def sine_of_largest_angle(ours: np.ndarray, theirs: np.ndarray) -> float:
    return np.linalg.norm(ours - theirs @ (theirs.T @ ours), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder

    stored = load_file(folder / "embeddings.safetensors")
    v, s = (stored[name].astype(np.float64) for name in ("beta", "singular_values"))
    matrix = training_matrix(folder)
    print(f"{matrix.shape[0]} contexts x {matrix.shape[1]} actions, {matrix.nnz} interactions")

    start = time.perf_counter()
    _, exact, exact_v = svds(matrix, k=len(s))
    print(f"scipy.sparse.linalg.svds: {time.perf_counter() - start:.1f} s")
    order = np.argsort(-exact)
    exact, exact_v = exact[order], exact_v[order].T

    captured = np.sum((matrix @ v) ** 2) / np.sum(exact**2)
    print(f"captured energy: {captured:.6f} of the largest possible")
    print(f"V'V - I: {np.abs(v.T @ v - np.eye(len(s))).max():.1e} at most")
    error = np.abs(s / exact - 1)
    for part in (10, len(s) // 2, len(s)):
        print(f"singular values 1 to {part}: off by {error[:part].max():.1e} at most")
    for i in np.flatnonzero(1 - exact[1:] / exact[:-1] > GAP) + 1:
        sine = sine_of_largest_angle(v[:, :i], exact_v[:, :i])
        print(f"leading {i} directions: sine of the largest principal angle {sine:.1e}")


if __name__ == "__main__":
    main()
