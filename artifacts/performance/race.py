"""Races `slate` against a PyTorch + FAISS program on the same split, the same β and the same machine.

usage: race.py SLATE PEER DATA OUT [--seconds N] [--rounds N]

SLATE  the binary
PEER   a script that takes `data.npz -S n --retriever hnsw|exact --seconds n --evals n --init paper`
       and prints one JSON line per evaluation: seconds, steps, reward
DATA   a folder prepared with `--preset paper` and an index, with DATA.npz beside it
OUT    where the results go: race.json and race.md

Ours and theirs run in turn; the table has the medians, and the median of the rounds' ratios. Then both
train for one reward: the peer's after a minute, and how long ours takes to it. Needs: numpy scipy faiss-cpu
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile

parser = argparse.ArgumentParser()
for name in ("slate", "peer", "data", "out"):
    parser.add_argument(name)
parser.add_argument("--seconds", type=int, default=10)
parser.add_argument("--rounds", type=int, default=3)
arguments = parser.parse_args()


def run(command, log):
    """Runs a command to its end; its stdout and its peak memory in MB."""
    with open(log, "w") as stderr:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}: failed\n{open(log).read()}")
    return output, usage.ru_maxrss / 1024


def ours(method, samples, seconds, sets={}, evaluations=2):
    """A run: steps a second over the whole of it, and what its record says."""
    folder = tempfile.mkdtemp()
    command = [arguments.slate, "train", "--data", arguments.data, "--out", f"{folder}/run", "--preset", "paper", "--json",
               "--method", method, "--samples", str(samples), "--seconds", str(seconds),
               "--set", f"evaluation.count={evaluations}"]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    _, memory = run(command, f"{folder}/log")
    rows = [json.loads(line) for line in open(f"{folder}/run/metrics.jsonl")]
    shutil.rmtree(folder)
    validation = [row for row in rows if row["kind"] == "evaluation" and row["split"] == "validation"]
    last = validation[-1]
    return {"rate": last["step"] / last["seconds"], "memory": memory, "reward": last["reward"],
            "curve": [(row["seconds"], row["reward"]) for row in validation],
            "recall": [row["recall"] for row in rows if row["kind"] == "recall"]}


def theirs(retriever, samples, seconds):
    folder = tempfile.mkdtemp()
    command = [sys.executable, arguments.peer, f"{arguments.data}.npz", "-S", str(samples), "--seconds", str(seconds),
               "--evals", "1", "--retriever", retriever, "--init", "paper"]
    output, memory = run(command, f"{folder}/log")
    shutil.rmtree(folder)
    last = json.loads(output.splitlines()[-1])
    return {"rate": last["steps"] / last["seconds"], "memory": memory, "reward": last["reward"]}


def their_recall(sigma=0.01, ef=16, m=32):
    """Recall@5 of the peer's index on perturbed training queries at its start."""
    import faiss, numpy, scipy.sparse
    file = numpy.load(f"{arguments.data}.npz")
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
cells = {f"graph, S = {samples}": ("lgp-mips", "hnsw", samples) for samples in (1, 10, 100)}
cells["exact, S = 10"] = ("lgp", "exact", 10)
results = {"seconds": seconds, "their_recall": their_recall(), "cells": {}}
for round in range(arguments.rounds):
    for name, (method, retriever, samples) in cells.items():
        pair = {"ours": ours(method, samples, seconds), "theirs": theirs(retriever, samples, seconds)}
        results["cells"].setdefault(name, []).append(pair)
        print(f"round {round + 1}  {name}: {pair['ours']['rate']:.1f} to {pair['theirs']['rate']:.1f} steps/s", flush=True)

goal = max(theirs("hnsw", samples, 6 * seconds)["reward"] for samples in (1, 10))
baseline = {"method.baseline": "leave-one-out"}
starts = {"leave-one-out, θ = I": {**baseline, "tower.initial": "identity"},
          "leave-one-out, σ = 0.3‖h‖/√L, the peer's θ": {**baseline, "method.sigma": "relative(0.3)"}}
results["goal"] = {"reward": goal, "seconds": {}}
for name, sets in starts.items():
    for _ in range(arguments.rounds):
        curve = ours("lgp-mips", 10, 2 * seconds, sets, 100)["curve"]
        reached = next((at for at, reward in curve if reward >= goal), None)
        results["goal"]["seconds"].setdefault(name, []).append(reached)

json.dump(results, open(f"{arguments.out}/race.json", "w"), indent=1)
median = statistics.median
with open(f"{arguments.out}/race.md", "w") as table:
    table.write("| | ours, steps/s | theirs | ratio (each round) | peak memory, ours / theirs | our recall at the start, the end |\n"
                "|---|---|---|---|---|---|\n")
    for name, pairs in results["cells"].items():
        ratios = [pair["ours"]["rate"] / pair["theirs"]["rate"] for pair in pairs]
        rate = lambda who: median(pair[who]["rate"] for pair in pairs)
        memory = lambda who: median(pair[who]["memory"] for pair in pairs)
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        recall = ", ".join(f"{value:.3f}" for value in pairs[0]["ours"]["recall"]) or "exact"
        table.write(f"| {name} | {rate('ours'):.0f} | {rate('theirs'):.0f} | {median(ratios):.2f} ({each}) |"
                    f" {memory('ours'):.0f} / {memory('theirs'):.0f} MB | {recall} |\n")
    table.write(f"\nRecall@5 of the peer's index at its start: {results['their_recall']:.3f}.\n\n"
                f"Reward {goal:.4f}, the peer's after {6 * seconds} s, is reached after (seconds, each round):\n\n")
    for name, times in results["goal"]["seconds"].items():
        table.write(f"- {name}: {', '.join(f'never in {2 * seconds}' if t is None else f'{t:.1f}' for t in times)}\n")
print(open(f"{arguments.out}/race.md").read())
