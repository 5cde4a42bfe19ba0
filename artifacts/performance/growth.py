"""Steps per second against the size of the catalogue, ours and a PyTorch + FAISS program's, as a table and a figure.

usage: growth.py SLATE PEERS LIKE WORK OUT [ACTIONS...]     needs: numpy polars safetensors matplotlib

PEERS  a folder with torch_faiss_lgp.py (see race.py) and from_prepared.py, which makes its input of a prepared folder
LIKE   a prepared folder whose spectrum the catalogues have;  WORK  where they go (4 GB at 2.23 million actions)
OUT    where growth.json, growth.md and growth.svg go
"""
import json, os, subprocess, sys

slate, peers, like, work, out = sys.argv[1:6]
sizes = [int(size) for size in sys.argv[6:]] or [50_000, 200_000, 750_000, 2_230_000]
SAMPLES, BATCH = (1, 10, 100), 32
SEARCHES = {"exact": {"retrieval.kind": "exact", "retrieval.candidates": 0},
            "HNSW": {"retrieval.kind": "hnsw", "retrieval.candidates": 0},
            "shared candidates": {"retrieval.kind": "hnsw", "retrieval.candidates": 40}}
PEER = "PyTorch + FAISS HNSW"
os.makedirs(work, exist_ok=True); os.makedirs(out, exist_ok=True)
here = os.path.dirname(os.path.abspath(__file__))


def ours(data, search, samples, actions):
    # About five seconds each: a step of exact search is 200·P·S·B operations, of which this machine does 1e11 a second.
    cost = 2e-9 * actions * samples * BATCH if search == "exact" else 5e-5 * samples * BATCH
    command = [slate, "bench", "step", data, "--json", "--samples", str(samples), "--steps", str(max(3, min(1000, int(5 / cost))))]
    for key, value in {"embedding.power": 0, **SEARCHES[search]}.items():
        command += ["--set", f"{key}={value}"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["steps_per_second"]


def theirs(data, samples):
    command = [sys.executable, f"{peers}/torch_faiss_lgp.py", f"{data}.npz", "-S", str(samples), "--seconds", "6", "--evals", "1",
               "--init", "eye"]
    last = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return last["steps"] / last["seconds"]


# What an earlier run has measured stays; delete growth.json to measure it again.
kept = f"{out}/growth.json"
results = json.load(open(kept)) if os.path.exists(kept) else {}
for actions in sizes:
    data = f"{work}/{actions}"
    cells = {f"{search}|{samples}|{actions}": (ours, (data, search, samples, actions)) for samples in SAMPLES for search in SEARCHES}
    # Its index takes more than four minutes at 2.23 million actions, and every run builds it anew.
    asked = SAMPLES if actions < 1_000_000 else SAMPLES[:1]
    cells |= {f"{PEER}|{samples}|{actions}": (theirs, (data, samples)) for samples in asked}
    cells = {key: cell for key, cell in cells.items() if key not in results}
    if cells and not os.path.exists(f"{data}/prepare.toml"):
        subprocess.run([sys.executable, f"{here}/catalogue.py", slate, like, str(actions), data], check=True)
    if any(measure is theirs for measure, _ in cells.values()) and not os.path.exists(f"{data}.npz"):
        subprocess.run([sys.executable, f"{peers}/from_prepared.py", data, f"{data}.npz"], check=True)
    for key, (measure, arguments) in cells.items():
        results[key] = measure(*arguments)
        print(f"{key}: {results[key]:.2f} steps/s", flush=True)
        json.dump(results, open(kept, "w"), indent=1)

names = [*SEARCHES, PEER]
with open(f"{out}/growth.md", "w") as table:
    table.write("| S | P | " + " | ".join(names) + " |\n|---|---|" + "---|" * len(names) + "\n")
    for samples in SAMPLES:
        for actions in sizes:
            rates = (results.get(f"{name}|{samples}|{actions}") for name in names)
            row = (f"{rate:.3g}" if rate else "–" for rate in rates)
            table.write(f"| {samples} | {actions:,} | " + " | ".join(row) + " |\n")

import matplotlib
matplotlib.use("svg")
import matplotlib.pyplot as plt
figure, panels = plt.subplots(1, len(SAMPLES), figsize=(12, 4), sharey=True, layout="constrained")
for panel, samples in zip(panels, SAMPLES):
    for name, marker in zip(names, "os^x"):
        measured = [size for size in sizes if f"{name}|{samples}|{size}" in results]
        rates = [results[f"{name}|{samples}|{size}"] for size in measured]
        panel.loglog(measured, rates, marker=marker, linestyle="--" if name == names[-1] else "-", label=name)
    panel.set_title(f"S = {samples}"); panel.set_xlabel("actions P"); panel.grid(True, which="major", alpha=0.3)
    panel.set_xticks(sizes, [f"{size / 1e6:g} M" if size >= 1e6 else f"{size // 1000} K" for size in sizes])
    panel.minorticks_off()
panels[0].set_ylabel("steps a second")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
figure.savefig(f"{out}/growth.svg")
