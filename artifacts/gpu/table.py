"""The tables of artifacts/gpu/run.sh: table.py OUT. The last row of a kind counts. Shares are of PyTorch's rate of
products in f32 where it was measured, else of our own. Our answers are those of f32, in whatever numbers vectors lie there."""
import json, os, sys

out = sys.argv[1]
KINDS = ("f32", "tf32", "f16")


def rows(name):
    path = f"{out}/{name}.jsonl"
    return [json.loads(line) for line in open(path)] if os.path.exists(path) else []


def last(rows, *fields):
    """The last row of each kind, largest first."""
    kinds = {tuple(row[field] for field in fields): row for row in rows}
    return dict(sorted(kinds.items(), key=lambda pair: [-of if isinstance(of, int) else str(of) for of in pair[0]]))


def times(trials):
    """What a manner was chosen by, in milliseconds."""
    of = lambda name: "none" if trials[name] is None else f"{1e3 * trials[name]:.2f}"
    return " / ".join(of(name) for name in ("sweep", "half"))


searches, steps = rows("search"), rows("step")
cells = [{"latent_dim": run["latent_dim"], "product": run["product_gflops"], **cell} for run in searches for cell in run["searches"]]
cells = last(cells, "latent_dim", "actions", "queries", "slate_size", "manner")
for hardware in sorted({row["hardware"] for row in [*cells.values(), *steps, *rows("peer"), *rows("peer_step")]}):
    print(f"On {hardware}.")
peers = last(rows("peer"), "latent_dim", "actions", "queries", "slate_size", "kind")
print("\n| L | P | queries | K | manner | vectors | milliseconds | share of the product's rate | PyTorch f32 | TF32 | f16 | ratio to f32 |")
print("|---|---|---|---|---|---|---|---|---|---|---|---|")
for (*key, manner), cell in cells.items():
    theirs = [peers.get((*key, kind)) for kind in KINDS]
    rate = theirs[0]["product_gflops"] if theirs[0] else cell["product"]
    ratio = f"{theirs[0]['milliseconds'] / cell['milliseconds']:.2f}" if theirs[0] else ""
    other = "" if cell["same"] in (True, None) else " OTHER SLATES THAN THE HOST"
    peer = " | ".join(f"{row['milliseconds']:.2f}" if row else "" for row in theirs)
    print(f"| {key[0]} | {key[1]:,} | {key[2]:,} | {key[3]} | {manner} | {cell['numbers']}{other} | {cell['milliseconds']:.2f} |"
          f" {100 * cell['gflops'] / rate:.0f} % | {peer} | {ratio} |")

kernels = last(rows("kernels"), "latent_dim", "actions", "queries", "slate_size", "manner")
if kernels:
    print("\n| L | P | queries | K | manner | launches | sweeps, ms | prunes | other kernels | all | of a search's |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
for key, row in kernels.items():
    own = row["kernels"]
    spent = {name: of["milliseconds"] for name, of in own.items()}
    sweeps, prunes, every = spent.get("Sweep", 0.0), spent.get("Prune", 0.0), sum(spent.values())
    whole = f"{cells[key]['milliseconds']:.2f}" if key in cells else ""
    launches = sum(of["launches"] for of in own.values())
    print(f"| {key[0]} | {key[1]:,} | {key[2]:,} | {key[3]} | {key[4]} | {launches} | {sweeps:.3f} | {prunes:.3f} |"
          f" {every - sweeps - prunes:.3f} | {every:.3f} | {whole} |")

peers = last(rows("peer_step"), "actions", "samples", "slate_size", "kind")
print("\n| P | S | K | manner | vectors | steps/s | PyTorch f32 | TF32 | f16 | ratio to f32 |")
print("|---|---|---|---|---|---|---|---|---|---|")
for (*key, manner), row in last(steps, "actions", "samples", "slate_size", "manner").items():
    theirs = [peers.get((*key, kind)) for kind in KINDS]
    ratio = f"{row['steps_per_second'] / theirs[0]['steps_per_second']:.2f}" if theirs[0] else ""
    peer = " | ".join(f"{of['steps_per_second']:.3g}" if of else "" for of in theirs)
    print(f"| {key[0]:,} | {key[1]} | {key[2]} | {manner} | {row['numbers']} | {row['steps_per_second']:.3g} | {peer} | {ratio} |")

trials = last([row for row in steps if row["trials"]], "actions")
if trials:
    print("\n| P | queries | milliseconds in f32 / f16 in a trial |\n|---|---|---|")
for (actions,), row in trials.items():
    print(f"| {actions:,} | {row['trials']['queries']:,} | {times(row['trials'])} |")
