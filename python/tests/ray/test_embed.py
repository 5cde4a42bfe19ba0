"""Vectors of a log that no process holds."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import ray
from common import slate, trainer

from fast_slate.ray import embed
from fast_slate.ray._embed import Users


def tensors(path: Path) -> dict[str, np.ndarray]:
    """The f32 tensors of a safetensors file."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = {key: of for key, of in json.loads(raw[8:start]).items() if key != "__metadata__"}
    found = {}
    for key, of in header.items():
        first, last = of["data_offsets"]
        numbers = np.frombuffer(raw[start + first : start + last], np.float32)
        found[key] = numbers.reshape(of["shape"])
    return found


@pytest.fixture(scope="module")
def parts(frame: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The log as a table that is partitioned by day; some pairs are there twice."""
    folder = tmp_path_factory.mktemp("parts")
    rows = pl.concat([frame, frame.sample(500, seed=1)]).with_row_index("row")
    for day in range(3):
        (folder / f"day={day}").mkdir()
        of_day = rows.filter(pl.col("row") % 3 == day).select("user_id", "item_id")
        of_day.write_parquet(folder / f"day={day}" / "log.parquet")
    return str(folder)


def dense(frame: pl.DataFrame) -> tuple[np.ndarray, list[str]]:
    """The normalised matrix, and its items."""
    items = frame["item_id"].unique().sort()
    users = frame["user_id"].unique().sort()
    matrix = np.zeros((len(users), len(items)))
    who, what = users.search_sorted(frame["user_id"]), items.search_sorted(frame["item_id"])
    matrix[who, what] = 1
    scale = [matrix.sum(axis=axis, keepdims=True) ** -0.25 for axis in (0, 1)]
    return matrix * scale[0] * scale[1], [str(item) for item in items]


@pytest.mark.parametrize("actors", [1, 3])
def test_the_decomposition_is_that_of_the_whole_matrix(
    frame: pl.DataFrame, parts: str, tmp_path: Path, actors: int
) -> None:
    out = tmp_path / "vectors.safetensors"
    embed(parts, out, latent_dim=16, actors=actors)
    matrix, items = dense(frame)
    assert out.with_suffix(".ids").read_text().split() == items
    found = tensors(out)
    exact = np.linalg.svd(matrix, compute_uv=False)
    captured = (np.linalg.norm(matrix @ found["beta"]) / np.linalg.norm(exact[:16])) ** 2
    assert captured > 0.999
    np.testing.assert_allclose(found["singular_values"], exact[:16], rtol=1e-3)
    np.testing.assert_allclose(found["energy"], [(exact**2).sum(), 120], rtol=1e-5)


def test_vectors_of_elsewhere_are_prepared_and_trained_with(
    log: Path, parts: str, tmp_path: Path
) -> None:
    out, data = tmp_path / "vectors.safetensors", tmp_path / "data"
    embed(parts, out, latent_dim=16)
    vectors = ["--embeddings", out, "--embedding-ids", out.with_suffix(".ids")]
    columns = ["--user-column", "user_id", "--item-column", "item_id"]
    told = slate("prepare", log, *columns, *vectors, "--out", data)
    assert told.returncode == 0, told.stderr
    # The singular values came along: the vectors have a form.
    trained = trainer(settings={"embedding.power": 0.5, "context.folds": 0}).fit(data)
    found = tensors(out)
    place = out.with_suffix(".ids").read_text().split().index(str(trained.item_ids_[0]))
    expected = found["beta"][place] * found["singular_values"] ** 0.5
    np.testing.assert_allclose(trained.embeddings_[0], expected, rtol=1e-5)


def test_actors_that_are_killed_read_their_rows_again(parts: str, tmp_path: Path) -> None:
    embed(parts, tmp_path / "whole.safetensors", latent_dim=16, passes=8)
    ended, killed = threading.Event(), 0

    def now_and_then(actors: list[Any]) -> None:
        nonlocal killed
        while killed < 2 and not ended.wait(0.3):
            try:
                pid = ray.get(actors[killed % 2].process.remote(), timeout=20)
            except ray.exceptions.RayError:
                break
            os.kill(pid, signal.SIGKILL)
            killed += 1

    def start(actors: list[Any]) -> None:
        threading.Thread(target=now_and_then, args=(actors,), daemon=True).start()

    try:
        embed(parts, tmp_path / "killed.safetensors", latent_dim=16, passes=8, started=start)
    finally:
        ended.set()
    assert killed == 2
    names = ["whole.safetensors", "killed.safetensors"]
    whole, again = (Path(tmp_path / name).read_bytes() for name in names)
    assert whole == again


def test_an_actor_that_comes_back_to_other_rows_says_so(frame: pl.DataFrame, tmp_path: Path) -> None:
    frame.write_parquet(tmp_path / "one.parquet")
    asked = (str(tmp_path), "user_id", "item_id", 0, 2)
    items, counts, _, digest = Users(*asked).counts()
    whole = (items, counts.astype(np.int32), 0.25)
    assert Users(*asked).energy(whole, digest) > 0
    # Pairs of the same users and the same items.
    frame.with_columns(pl.col("item_id").shuffle(seed=1)).write_parquet(tmp_path / "two.parquet")
    with pytest.raises(ValueError, match="its rows changed while they were read"):
        Users(*asked).energy(whole, digest)


def test_what_cannot_be_read_is_named(parts: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a column person, found user_id, item_id, day"):
        embed(parts, tmp_path / "v.safetensors", user="person")
    bad = tmp_path / "bad"
    bad.mkdir()
    pl.DataFrame({"user_id": [1, None], "item_id": [1, 2]}).write_parquet(bad / "log.parquet")
    with pytest.raises(RuntimeError, match="column user_id: expected an id in each row"):
        embed(str(bad), tmp_path / "v.safetensors", actors=1)
    with pytest.raises(ValueError, match="expected a .safetensors file"):
        embed(parts, tmp_path / "v.npy")
    with pytest.raises(ValueError, match="expected a file of this machine"):
        embed(parts, "s3://bucket/v.safetensors")


def test_the_folder_of_vectors_is_made(parts: str, tmp_path: Path) -> None:
    embed(parts, tmp_path / "new" / "below" / "v.safetensors", latent_dim=8, actors=1)
    assert (tmp_path / "new" / "below" / "v.ids").exists()
