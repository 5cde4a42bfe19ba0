"""The slates of a bundle from Python: those of `slate recommend`, but for neighbours within 1e-5.

pip install numpy pyarrow safetensors usearch; python recommend.py BUNDLE 260,1196 [K] [index]
"""
import math, sys, tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file
from usearch.index import Index

ACTIVATIONS = {
    "relu": lambda z: np.maximum(z, 0), "tanh": np.tanh, "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "gelu": lambda z: z * (1 + np.vectorize(math.erf)(z / math.sqrt(2))) / 2,
}


class Bundle:
    def __init__(self, folder: Path):
        self.about = tomllib.loads((folder / "bundle.toml").read_text())
        assert self.about["format"] == 2, "another fast-slate wrote this bundle"
        scales = self.about["vectors"]["scales"]
        tensors = load_file(folder / "vectors.safetensors")
        vectors = {name: t.astype(np.float32) / scales.get(name, 1) for name, t in tensors.items()}
        self.beta = vectors["beta"]  # [P, L], which is searched
        self.fold_in = vectors.get("fold_in", self.beta)
        self.inputs = vectors.get("inputs", self.fold_in)  # [P, L], of which contexts are made
        self.weights = vectors.get("weights", np.ones((len(self.beta), 1)))[:, 0]
        layers = load_file(folder / "model.safetensors") if "tower" in self.about else {}
        corrections = self.about.get("corrections", [])
        self.layers = [layers[f"layer.{at}"] for at in range(len(layers) - len(corrections))]
        self.corrections = [(layers[f"correction.{at}"], r) for at, r in enumerate(corrections)]
        items = pq.read_table(folder / "items.parquet")
        self.ids = [str(item) for item in items["item_id"].to_pylist()]
        self.titles = items["title"].to_pylist() if "title" in items.column_names else self.ids
        self.actions = {item: action for action, item in enumerate(self.ids)}
        if "index" in self.about:
            self.index = Index.restore(str(folder / "index.usearch"))
            # The index holds one of equal vectors: actions of one class stand and fall together.
            rows = self.beta.view(f"V{self.beta[0].nbytes}").ravel()
            self.classes = np.unique(rows, return_inverse=True)[1]

    def encode(self, encoder: dict, known):
        """M(X) of one encoder, for somebody new who has the actions `known`, the latest last."""
        if encoder["kind"] == "features" or len(known) == 0:
            return np.zeros(encoder.get("width", self.inputs.shape[1]))
        if encoder["kind"] == "fold-in":
            beta, own = self.fold_in.astype(float), self.fold_in[known].astype(float)
            ridge = encoder["regularization"] * np.eye(beta.shape[1])
            normal = beta.T @ beta + encoder["confidence"] * own.T @ own + ridge
            return np.linalg.solve(normal, (1 + encoder["confidence"]) * own.sum(0))
        inputs, weights = self.inputs[known], np.ones(len(known))
        if encoder["kind"] != "mean":
            weights = self.weights[known] * np.arange(len(known), 0, -1.0) ** -encoder["recency"]
        if encoder["kind"] == "balanced-mean":
            lengths = np.linalg.norm(inputs, axis=1, keepdims=True)
            directions = inputs / np.where(lengths > 0, lengths, 1)
            weights = weights / (1 + np.maximum(0, directions @ directions.sum(0) - 1))
        return weights @ inputs / weights.sum()

    def query(self, context):
        """h of a context M(X) [D]."""
        h = self.uncorrected(context)
        for weights, radius in self.corrections:
            delta = context @ weights
            most = radius["fixed"] if "fixed" in radius else radius["relative"] * np.linalg.norm(h)
            h = h + delta * min(1, most / max(np.linalg.norm(delta), 1e-15))
        return h

    def uncorrected(self, context):
        tower = self.about.get("tower", {"kind": "linear"})
        if tower["kind"] == "linear":
            return context @ self.layers[0] if self.layers else context
        if tower["kind"] == "sigmoid-mlp":
            return ACTIVATIONS["sigmoid"](context @ self.layers[0]) @ self.layers[1]
        dim = self.beta.shape[1]
        if "balance" in tower:  # between the first two means
            first, second = context[:dim], context[dim : 2 * dim]
            mean = first + tower["balance"] * (second - first)
            context = np.concatenate([mean, context[2 * dim :]])
        hidden = context / tower["scale"]
        for layer in self.layers[:-1]:
            hidden = ACTIVATIONS[tower["activation"]](hidden @ layer)
        return context[:dim] + tower["scale"] * hidden @ self.layers[-1]

    def recommend(self, known, k: int, index=False):
        """Actions and scores; none of `known`. Through the index, twice as many are looked for."""
        parts = [self.encode(encoder, known) for encoder in self.about["encoders"]]
        query = self.query(np.concatenate(parts).astype(np.float32)).astype(np.float32)
        candidates = np.arange(len(self.beta))
        if index and np.any(query):
            count = min(2 * (k + len(known)), len(candidates))
            self.index.expansion_search = max(self.about["index"]["ef_search"], 2 * count)
            found = self.index.search(query / np.linalg.norm(query), count).keys.astype(int)
            candidates = np.flatnonzero(np.isin(self.classes, self.classes[found]))
        candidates = np.setdiff1d(candidates, known)  # ascending: ties go to the popular
        scores = self.beta[candidates] @ query
        best = np.argsort(-scores, kind="stable")[:k]
        return candidates[best], scores[best]


if __name__ == "__main__":
    bundle, items = Bundle(Path(sys.argv[1])), sys.argv[2].split(",") if sys.argv[2] else []
    known = [bundle.actions[item] for item in dict.fromkeys(reversed(items))][::-1]
    k = int(sys.argv[3]) if len(sys.argv) > 3 else bundle.about["trained"]["slate_size"]
    actions, scores = bundle.recommend(known, k, "index" in sys.argv[4:])
    for rank, (action, score) in enumerate(zip(actions, scores), 1):
        print(f"{rank:3}  {bundle.ids[action]}  {score:9.4f}  {bundle.titles[action] or ''}")
