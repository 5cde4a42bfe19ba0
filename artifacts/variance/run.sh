#!/usr/bin/env bash
# How noisy the methods' gradients are, over K, all at the same θ: Gowalla, one sample, no baseline, exact
# search, σ = 1/B, θ = I, observed places kept off slates, β = V·s and V·s^½ of the plain SVD.
# `spans`: of LGP as the default settings train it but without folds, at three lengths of an SVD, where every sample is
# searched for and where samples share candidates.
# usage: artifacts/variance/run.sh OUT [table|spans]...
source "$(dirname "$0")/../common.sh"

table() {
    prepare_gowalla "$work/variance" --normalization 0 --no-index
    for power in 1 0.5; do
        slate variance "$work/variance" --preset paper --set method.sigma=inverse-norm --set tower.initial=identity \
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

spans() {
    local length candidates
    for length in $(pick "512 1024 2048" "20 50"); do
        prepare_gowalla "$work/length-$length" --embeddings svd --latent-dim "$length" --no-index
        for candidates in 0 $(pick 100 20); do
            slate variance "$work/length-$length" --methods lgp --slate-sizes 5 --sample-sizes 30 --draws "$(pick 20 5)" \
                --set context.folds=0 --set "method.candidates=$candidates" --json >"$out/length-$length-candidates-$candidates.json"
        done
    done
    python3 - "$out" <<'PYTHON' | tee "$out/spans.md"
import glob, json, re, sys
print("| L | candidates | variance | squared signal |\n|---|---|---|---|")
cells = {tuple(map(int, re.findall(r"(?:length|candidates)-(\d+)", path))): json.load(open(path))[0]
         for path in glob.glob(f"{sys.argv[1]}/length-*.json")}
for (length, candidates), cell in sorted(cells.items()):
    print(f"| {length} | {candidates or 'none'} | {cell['variance']:.3g} | {cell['signal']:.3g} |")
PYTHON
}

run_stages "table spans" "$@"
