"""Slates for everybody on Spark: spark-submit spark_batch.py BUNDLE USERS OUT

Not run here: no Spark is. Every worker opens the bundle once, from a folder that all of them reach.
"""

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from fast_slate import Recommender

bundle, users, out = sys.argv[1:]


def slates(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Users' ids in, their slates out."""
    answers = Recommender(bundle, k=50)
    for batch in batches:
        found = pa.table(answers(batch)).select(["user", "rank", "item_id", "score"])
        yield from found.cast(SCHEMA).to_batches()


SCHEMA = pa.schema([("user", pa.int64()), ("rank", pa.int32()), ("item_id", pa.int64()), ("score", pa.float32())])
spark = SparkSession.builder.appName("slates").getOrCreate()
rows = spark.read.parquet(users).select("user_id")
rows.mapInArrow(slates, "user long, rank int, item_id long, score float").write.parquet(out)
