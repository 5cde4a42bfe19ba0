"""A small synthetic log."""

from pathlib import Path

import polars as pl
import pytest
from common import NAMES, policy, slate

from fast_slate import SlatePolicy


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV of 400 users and 120 items, with columns user_id and item_id."""
    path = tmp_path_factory.mktemp("log") / "log.csv"
    shape = ["--users", 400, "--actions", 120, "--density", 0.2]
    made = slate("synth", *shape, "--out", path, "--topics", 8, "--ceiling-users", 50)
    assert made.returncode == 0, made.stderr
    return path


@pytest.fixture(scope="session")
def frame(log: Path) -> pl.DataFrame:
    return pl.read_csv(log)


@pytest.fixture(scope="session")
def fitted(frame: pl.DataFrame) -> SlatePolicy:
    return policy().fit(frame, **NAMES)
