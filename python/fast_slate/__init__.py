"""Trains the slate that a recommender shows, the ordered top K, directly for its own reward.

>>> from fast_slate import SlatePolicy
>>> policy = SlatePolicy(slate_size=5).fit("log.csv", user="user_id", item="item_id")
>>> policy.recommend(users=["42"])
"""

from ._commands import compare, prepare, train, tune
from ._native import __version__
from .policy import SlatePolicy
from .recommender import Recommender
from .results import Sample, Table
from .rewards import Batch, Rows

__all__ = [
    "Batch",
    "Recommender",
    "Rows",
    "Sample",
    "SlatePolicy",
    "Table",
    "__version__",
    "compare",
    "prepare",
    "train",
    "tune",
]
