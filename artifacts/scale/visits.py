"""Turns a log of `slate synth` into one as large as asked for, in the format of Twitch's
`full_a.csv`: `user,stream,streamer,start,stop`, no header, every pair repeated as often as it takes.

    python3 visits.py LOG.parquet OUT/full_a.csv GIGABYTES
"""

import os
import sys

import numpy as np
import polars as pl

source, out, size = sys.argv[1], sys.argv[2], float(sys.argv[3]) * 1e9
log = pl.read_parquet(source)
random = np.random.default_rng(0)
BLOCK = 4_000_000
with open(out, "wb") as file:
    while file.tell() < size:
        for start in range(0, len(log), BLOCK):
            if file.tell() >= size:
                break
            block = log.slice(start, BLOCK)
            begins = random.integers(0, 6100, len(block))
            visits = pl.DataFrame({
                "user": block["user_id"],
                "stream": random.integers(33_000_000_000, 35_000_000_000, len(block)),
                "streamer": "streamer_" + block["item_id"].cast(pl.String),
                "start": begins,
                "stop": begins + random.integers(1, 40, len(block)),
            })
            visits.write_csv(file, include_header=False)
print(f"{os.path.getsize(out) / 1e9:.2f} GB")
