"""Races `slate` against a PyTorch + FAISS program on the same split, the same β and the same machine.

usage: race.py SLATE PEER PAPER DEFAULT OUT [--seconds N] [--rounds N] [--only TEXT]

SLATE    the binary
PEER     a script that takes `data.npz -S n -K n --retriever hnsw|exact --seconds n --evals n --init paper|eye
         --baseline none|loo --ef n --m n` and prints one JSON line per evaluation: seconds, steps, reward
PAPER    a folder prepared with `--preset paper`, with PAPER.npz beside it
DEFAULT  one prepared with the default preset, with DEFAULT.npz beside it (β = V·s^½)
OUT      where the results go: results.json and table.md

Ours and theirs run in turn, `--rounds` times; the table has the medians and the median of the rounds' ratios.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile

arguments = argparse.ArgumentParser()
for name in ("slate", "peer", "paper", "default", "out"):
    arguments.add_argument(name)
arguments.add_argument("--seconds", type=int, default=15)
arguments.add_argument("--rounds", type=int, default=3)
arguments.add_argument("--only", default="", help="the cells with this in their name, and not the race to a reward")
arguments = arguments.parse_args()

# The graph that finds at least what the peer's does (its recall stands in the table), and no more.
GRAPH = {"connectivity": 8, "ef_construction": 128, "ef_search": 12, "scalar": "f16"}


def run(command, log):
    """Runs a command to its end; its stdout and its peak memory in MB."""
    with open(log, "w") as stderr:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}: failed\n{open(log).read()}")
    return output, usage.ru_maxrss / 1024


def ours(data, preset, samples, seconds, sets, evaluations=2):
    """One run: steps a second over the whole of it, and what its record says."""
    folder = tempfile.mkdtemp()
    command = [arguments.slate, "train", "--data", data, "--out", f"{folder}/run", "--preset", preset, "--json",
               "--samples", str(samples), "--seconds", str(seconds), "--set", f"evaluation.count={evaluations}"]
    if preset == "default":
        command += ["--config", "artifacts/former.toml"]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    _, memory = run(command, f"{folder}/log")
    rows = [json.loads(line) for line in open(f"{folder}/run/metrics.jsonl")]
    shutil.rmtree(folder)
    validation = [row for row in rows if row["kind"] == "evaluation" and row["split"] == "validation"]
    last = validation[-1]
    coverage = [row for row in rows if row["kind"] == "coverage"]
    # What an audit decides holds until the next one.
    searched = sum(b["step"] - a["step"] for a, b in zip(coverage, coverage[1:]) if not a["shared"])
    return {
        "rate": last["step"] / last["seconds"], "memory": memory, "reward": last["reward"],
        "curve": [(row["seconds"], row["reward"]) for row in validation],
        "recall": [row["recall"] for row in rows if row["kind"] == "recall"],
        "coverage": [row["coverage"] for row in coverage], "fallen_back": searched / max(last["step"], 1),
    }


def theirs(data, samples, seconds, retriever="hnsw", init="paper", baseline="none", evaluations=1):
    folder = tempfile.mkdtemp()
    command = [sys.executable, arguments.peer, f"{data}.npz", "-S", str(samples), "--seconds", str(seconds),
               "--evals", str(evaluations), "--retriever", retriever, "--init", init, "--baseline", baseline]
    output, memory = run(command, f"{folder}/log")
    shutil.rmtree(folder)
    rows = [json.loads(line) for line in output.splitlines()]
    last = rows[-1]
    return {"rate": last["steps"] / last["seconds"], "memory": memory, "reward": last["reward"],
            "curve": [(row["seconds"], row["reward"]) for row in rows]}


def their_recall(data, sigma=0.01, ef=16, m=32):
    """Recall@5 of the peer's index on perturbed training queries at its own start."""
    import faiss, numpy, scipy.sparse
    file = numpy.load(f"{data}.npz")
    beta, pointers = file["beta"], file["train_observed_indptr"]
    indices = file["train_observed_indices"]
    observed = scipy.sparse.csr_matrix((numpy.ones(len(indices), numpy.float32), indices, pointers),
                                       shape=(len(pointers) - 1, len(beta)))
    count = numpy.maximum(numpy.diff(pointers), 1).astype(numpy.float32)
    contexts = scipy.sparse.diags(1 / count) @ observed @ beta
    generator = numpy.random.default_rng(0)
    theta = 0.005 * generator.standard_normal((beta.shape[1],) * 2)
    queries = contexts[generator.integers(0, len(contexts), 1000)] @ theta
    queries = (queries + sigma * generator.standard_normal(queries.shape)).astype(numpy.float32)
    exact = faiss.IndexFlatIP(beta.shape[1]); exact.add(beta)
    index = faiss.IndexHNSWFlat(beta.shape[1], m, faiss.METRIC_INNER_PRODUCT); index.add(beta)
    index.hnsw.efSearch = ef
    found, true = index.search(queries, 5)[1], exact.search(queries, 5)[1]
    return float(numpy.mean([len(set(a) & set(b)) / 5 for a, b in zip(found, true)]))


seconds = arguments.seconds
graph = {f"retrieval.hnsw.{key}": value for key, value in GRAPH.items()}
exact = {"retrieval.kind": "exact"}
cells = {}
for samples in (1, 10, 100):
    cells[f"`paper`, HNSW, S = {samples}"] = (
        lambda s=samples: ours(arguments.paper, "paper", s, seconds, graph),
        lambda s=samples: theirs(arguments.paper, s, seconds))
cells["`paper`, exact, S = 10"] = (
    lambda: ours(arguments.paper, "paper", 10, seconds, exact),
    lambda: theirs(arguments.paper, 10, seconds, "exact"))
# The peer on the same β, and on V, which it is slower on.
for samples in (10, 100):
    for beta, data in (("on the same β", arguments.default), ("on V", arguments.paper)):
        cells[f"`default` with shared candidates, S = {samples}, the peer {beta}"] = (
            lambda s=samples: ours(arguments.default, "default", s, seconds, {}, 10),
            lambda s=samples, data=data: theirs(data, s, seconds, init="eye"))
for samples in (10, 100):
    shared = {"retrieval.candidates": 40, **graph}
    cells[f"`paper` with shared candidates, S = {samples}"] = (
        lambda s=samples, sets=shared: ours(arguments.paper, "paper", s, seconds, sets, 10),
        lambda s=samples: theirs(arguments.paper, s, seconds))

cells = {name: cell for name, cell in cells.items() if arguments.only in name}
results = {"their_recall": their_recall(arguments.paper), "cells": {}}
for round in range(arguments.rounds):
    for name, (mine, other) in cells.items():
        pair = {"ours": mine(), "theirs": other()}
        results["cells"].setdefault(name, []).append(pair)
        print(f"round {round + 1}  {name}: {pair['ours']['rate']:.1f} to {pair['theirs']['rate']:.1f} steps/s,"
              f" {pair['ours']['rate'] / pair['theirs']['rate']:.2f} times", flush=True)

# The validation reward that the peer has after a minute at its best S, and how long ours takes to it.
minute = {} if arguments.only else {samples: theirs(arguments.paper, samples, 60) for samples in (1, 10)}
goal = max((one["reward"] for one in minute.values()), default=0.0)
baseline = {**graph, "estimator.baseline": "leave-one-out"}
starts = {"leave-one-out, θ = I": {**baseline, "tower.initial": "identity"},
          "leave-one-out, σ = 0.3‖h‖/√L, the peer's initialisation": {**baseline, "policy.sigma": "relative(0.3)"}}
results["goal"] = {"reward": goal, "rewards": {s: one["reward"] for s, one in minute.items()}, "seconds": {}}
for name, sets in starts.items() if minute else ():
    for _ in range(arguments.rounds):
        curve = ours(arguments.paper, "paper", 10, 20, sets, 100)["curve"]
        reached = next((at for at, reward in curve if reward >= goal), None)
        results["goal"]["seconds"].setdefault(name, []).append(reached)
        print(f"{goal:.4f} from {name}: {reached} s", flush=True)

os.makedirs(arguments.out, exist_ok=True)
json.dump(results, open(f"{arguments.out}/results.json", "w"), indent=1)
median = statistics.median
with open(f"{arguments.out}/table.md", "w") as table:
    table.write("| | ours, steps/s | theirs | ratio (each round) | peak memory, ours / theirs |\n|---|---|---|---|---|\n")
    for name, pairs in results["cells"].items():
        ratios = [pair["ours"]["rate"] / pair["theirs"]["rate"] for pair in pairs]
        rate = lambda who: median(pair[who]["rate"] for pair in pairs)
        memory = lambda who: median(pair[who]["memory"] for pair in pairs)
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        table.write(f"| {name} | {rate('ours'):.0f} | {rate('theirs'):.0f} | **{median(ratios):.2f}** ({each}) |"
                    f" {memory('ours'):.0f} / {memory('theirs'):.0f} MB |\n")
    table.write(f"\nRecall@5 of the peer's index at its start {results['their_recall']:.3f}; ours at the start and the"
                " end, and the coverage of shared candidates:\n\n")
    for name, pairs in results["cells"].items():
        one = pairs[0]["ours"]
        show = lambda values: ", ".join(f"{value:.3f}" for value in values)
        table.write(f"- {name}: recall {show(one['recall']) or 'exact'}"
                    + (f"; coverage {show(one['coverage'])}; searched for every sample in"
                       f" {100 * one['fallen_back']:.0f} % of the steps" if one["coverage"] else "") + "\n")
    if minute:
        table.write(f"\nReward {goal:.4f}, the peer's after 60 s, is reached after (seconds, each round):\n\n")
    for name, times in results["goal"]["seconds"].items():
        table.write(f"- {name}: {', '.join('never in 20' if t is None else f'{t:.1f}' for t in times)}\n")
print(open(f"{arguments.out}/table.md").read())
