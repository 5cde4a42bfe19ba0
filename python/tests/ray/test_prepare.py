"""A log that several processes read, and the folder that one would prepare of it."""

import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from common import SETTINGS

import fast_slate
import fast_slate.ray

TABLES = ("interactions.parquet", "contexts.parquet", "actions.parquet", "features.safetensors")
PREPARED = {key: value for key, value in SETTINGS.items() if key.startswith("prepare.")}


def folder(of: Path) -> tuple[list[bytes], dict[str, Any]]:
    """The sessions and features of a prepared folder, and its counts."""
    manifest = tomllib.loads((of / "prepare.toml").read_text())
    return [(of / name).read_bytes() for name in TABLES], manifest["statistics"]


@pytest.mark.parametrize("text", [False, True])
def test_several_processes_prepare_what_one_does(
    frame: pl.DataFrame, tmp_path: Path, text: bool
) -> None:
    rows = pl.concat([frame, frame.sample(fraction=0.5, seed=1)])
    rows = rows.with_row_index("at").with_columns(stars=pl.col("at") % 5, day=pl.col("at") % 3)
    # The two of a pair are days apart, and which is the first decides a split by time.
    rows = rows.sample(fraction=1.0, shuffle=True, seed=2).with_columns(at=pl.col("at").cast(pl.Int64))
    if text:
        rows = rows.with_columns(
            user_id="u" + pl.col("user_id").cast(pl.String), item_id=pl.col("item_id").cast(pl.String)
        )
    for day in range(3):
        (tmp_path / "log" / f"day={day}").mkdir(parents=True)
        rows.filter(pl.col("day") == day).drop("day").write_parquet(
            tmp_path / "log" / f"day={day}" / "rows.parquet"
        )
    columns = {"user": "user_id", "item": "item_id", "time": "at", "weight": "stars"}
    settings = {
        **PREPARED,
        "prepare.min_rating": 1,
        "prepare.min_item_interactions": 3,
        "prepare.split": "temporal",
    }
    users = rows.select("user_id").unique().sort("user_id").with_row_index("age")
    same: dict[str, Any] = {**columns, "embeddings": "svd", "settings": settings, "seed": 7}
    same["user_features"] = users.with_columns(pl.col("age").cast(pl.Int64) % 60)
    fast_slate.prepare(str(tmp_path / "log"), tmp_path / "one", **same)
    fast_slate.ray.prepare(str(tmp_path / "log"), tmp_path / "many", parts=3, **same)
    assert folder(tmp_path / "many") == folder(tmp_path / "one")
    assert not (tmp_path / "many.pairs").exists()


def test_a_node_that_does_not_share_the_folder_is_an_error(
    frame: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame.write_parquet(tmp_path / "log.parquet")
    # As on a node with a disk of its own, where nobody made the folder.
    monkeypatch.setattr("fast_slate.ray._prepare.own_folder", lambda _: None)
    with pytest.raises(ValueError, match="out: a node does not have the folder"):
        fast_slate.ray.prepare(
            str(tmp_path / "log.parquet"), tmp_path / "own" / "data", user="user_id", item="item_id"
        )


def test_the_row_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    pl.DataFrame({"user_id": [1, 2, None], "item_id": [1, 2, 3]}).write_parquet(
        tmp_path / "log.parquet"
    )
    log, columns = str(tmp_path / "log.parquet"), {"user": "user_id", "item": "item_id"}
    with pytest.raises(
        ValueError, match=r"log.parquet: in 3 rows of it: .*row 3: column `user_id`: expected an id"
    ):
        fast_slate.ray.prepare(log, tmp_path / "data", **columns)
    with pytest.raises(ValueError, match="prepare.skip_bad_rows.*mend the rows"):
        skips = {"prepare.skip_bad_rows": 1}
        fast_slate.ray.prepare(log, tmp_path / "data", settings=skips, **columns)
    with pytest.raises(ValueError, match="expected a column person, found user_id, item_id"):
        fast_slate.ray.prepare(log, tmp_path / "data", user="person", item="item_id")
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]
