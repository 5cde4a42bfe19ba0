"""The tables of artifacts/gpu/run.sh: table.py OUT. Shares are of PyTorch's rate of products at the same
dtype where it was measured, else of our own. Our answers are those of f32, in whatever numbers vectors lie there."""
import json, os, sys

out = sys.argv[1]


def rows(name):
    path = f"{out}/{name}.jsonl"
    return [json.loads(line) for line in open(path)] if os.path.exists(path) else []


peers = {(row["latent_dim"], row["actions"], row["queries"], row["slate_size"], row["dtype"], row["tf32"]): row
         for row in rows("peer")}
print("| L | P | queries | K | milliseconds | vectors | share of the product's rate | PyTorch f32 | TF32 | f16 | ratio to f32 |")
print("|---|---|---|---|---|---|---|---|---|---|---|")
for run in rows("search") + rows("long"):
    for cell in run["searches"]:
        key = (run["latent_dim"], cell["actions"], cell["queries"], cell["slate_size"])
        theirs = [peers.get((*key, *kind)) for kind in (("f32", False), ("f32", True), ("f16", False))]
        rate = theirs[0]["product_gflops"] if theirs[0] else run["product_gflops"]
        ratio = f"{theirs[0]['milliseconds'] / cell['milliseconds']:.2f}" if theirs[0] else ""
        times = " | ".join(f"{row['milliseconds']:.2f}" if row else "" for row in theirs)
        print(f"| {key[0]} | {key[1]:,} | {key[2]:,} | {key[3]} | {cell['milliseconds']:.2f} | {cell['numbers']} |"
              f" {100 * cell['gflops'] / rate:.0f} % | {times} | {ratio} |")

peers = {(row["actions"], row["samples"], row["slate_size"], row["dtype"], row["tf32"]): row for row in rows("peer_step")}
print("\n| P | S | K | steps/s | PyTorch f32 | TF32 | f16 | ratio to f32 |")
print("|---|---|---|---|---|---|---|---|")
for row in rows("step"):
    key = (row["actions"], row["samples"], row["slate_size"])
    theirs = [peers.get((*key, *kind)) for kind in (("f32", False), ("f32", True), ("f16", False))]
    ratio = f"{row['steps_per_second'] / theirs[0]['steps_per_second']:.2f}" if theirs[0] else ""
    rates = " | ".join(f"{row['steps_per_second']:.3g}" if row else "" for row in theirs)
    print(f"| {key[0]:,} | {key[1]} | {key[2]} | {row['steps_per_second']:.3g} | {rates} | {ratio} |")
