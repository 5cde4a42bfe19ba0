"""Beyond one machine, on Ray (``pip install './python[ray]'``): what grows is spread, training is not.

=====================  ==================================================================
``ShardedRetriever``   the catalogue in parts, an actor each, in the place of a search here
``SlatesOf``           users → slates, for ``ray.data.Dataset.map_batches``
``recommend``          a folder of users → a folder of slates
``embed``              a log → item vectors, for ``slate prepare --embeddings``
``prepare``            a log → a prepared folder
=====================  ==================================================================

The work is done by the same code as on one machine; Ray starts processes, carries arrays and starts
again what died.
"""

from ._batch import SlatesOf, recommend
from ._embed import embed
from ._prepare import prepare
from ._shards import ShardedRetriever

__all__ = ["ShardedRetriever", "SlatesOf", "embed", "prepare", "recommend"]
