#!/usr/bin/env bash
# How noisy the methods' gradients are, over K, all at the same θ: Gowalla, one sample, no baseline, exact
# search, σ = 1/B, θ = I, observed places kept off slates, β = V·s and V·s^½ of the plain SVD.
# usage: artifacts/variance/run.sh OUT
source "$(dirname "$0")/../common.sh"

table() {
    prepare_gowalla "$work/variance" --normalization 0 --no-index
    for power in 1 0.5; do
        slate variance "$work/variance" --preset paper --method lgp --set method.sigma=inverse-norm --set tower.initial=identity \
            --set retrieval.exclude_observed=true --set "embedding.power=$power" --draws "$(pick 100 5)" \
            --methods lgp,pl-pg,pl-rank,covariance --slate-sizes "$(pick 2,5,10 2,3)" --sample-sizes 1 --json >"$out/power-$power.json"
    done
    python3 - "$out" <<'PYTHON' | tee "$out/variance.md"
import json, sys
for power in ("1", "0.5"):
    cells = json.load(open(f"{sys.argv[1]}/power-{power}.json"))
    methods = list(dict.fromkeys(cell["method"] for cell in cells))
    print(f"β = V·s^{power}: variance, signal/variance\n")
    print("| K | " + " | ".join(methods) + " |\n|---|" + "---|" * len(methods))
    for size in dict.fromkeys(cell["slate_size"] for cell in cells):
        row = [cell for cell in cells if cell["slate_size"] == size]
        print(f"| {size} | " + " | ".join(
            cell.get("refused") or f"{cell['variance']:.2g}, {cell['signal_to_noise']:.2g}" for cell in row) + " |")
    print()
PYTHON
}

run_stages table "$@"
