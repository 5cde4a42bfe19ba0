"""How long the kernels of searches took: kernels.py LOG ACTIONS MANNER QUERIES SLATE_SIZES, the last two separated by
commas. LOG is what the runtime writes of each kernel of `slate bench search`, which searches for 4 queries as it starts,
then for the queries of each cell, and again for those that it compares with the host's. Prints a JSON line for each cell."""
import json, re, sys

path, actions, manner, queries, slate_sizes = sys.argv[1:]
MILLISECONDS = {"ns": 1e-6, "µs": 1e-3, "ms": 1.0, "s": 1e3}
kernel = re.compile(r"\| ([\d.]+)(ns|µs|ms|s) +\| (\w+).*_[0-9a-f]+$")
searches, own = [], {}
for line in open(path):
    if "Matmul" in line:  # The plain product, after which everything is searched for again.
        break
    found = kernel.match(line.strip())
    if not found:
        continue
    number, unit, name = found.groups()
    launches, milliseconds = own.get(name, (0, 0.0))
    own[name] = launches + 1, milliseconds + float(number) * MILLISECONDS[unit]
    if name == "Pack":  # It ends a search.
        searches.append(own)
        own = {}
cells = [(int(n), int(k)) for n in queries.split(",") for k in slate_sizes.split(",")]
if len(searches) != 1 + 2 * len(cells):
    sys.exit(f"{path}: {len(searches)} searches, expected {1 + 2 * len(cells)}: some lists had too little room")
for (rows, slate_size), kernels in zip(cells, searches[1::2]):
    row = {"latent_dim": 100, "actions": int(actions), "queries": rows, "slate_size": slate_size, "manner": manner}
    print(json.dumps({**row, "kernels": {name: {"launches": n, "milliseconds": ms} for name, (n, ms) in kernels.items()}}))
