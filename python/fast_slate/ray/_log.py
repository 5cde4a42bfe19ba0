"""A log in Parquet files, in any number of processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.dataset


def read(log: str, columns: list[str]) -> Any:
    """The log as a data set of Arrow, which has these columns."""
    found = pyarrow.dataset.dataset(log, format="parquet", partitioning="hive")
    for name in columns:
        if name not in found.schema.names:
            there = ", ".join(found.schema.names)
            raise ValueError(f"{log}: expected a column {name}, found {there}")
    return found


def digits(users: pa.Array) -> npt.NDArray[np.uint64]:
    """A number of each user, the same in every process."""
    if pa.types.is_integer(users.type):
        values = users.to_numpy(zero_copy_only=False)
    else:
        values = users.cast(pa.string()).to_numpy(zero_copy_only=False)
    return np.asarray(pd.util.hash_array(values, categorize=False), dtype=np.uint64)
