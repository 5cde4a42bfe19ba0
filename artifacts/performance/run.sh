#!/usr/bin/env bash
# What a search and a training step cost.
# usage: artifacts/performance/run.sh OUT [search|growth|race|als]...      (search and growth unless told)
#   search  exact search beside the machine's own rate of products
#   growth  steps a second over the number of actions (ACTIONS, if not all four), on synthetic logs; WORK
#           needs 12 GB
#   race    beside PyTorch + FAISS on Gowalla: PEERS is a folder with torch_faiss_lgp.py and
#           from_prepared.py (see race.py); PYTHON has numpy scipy polars safetensors faiss-cpu torch
#   als     ALS beside `implicit` on Gowalla: PYTHON has numpy scipy polars safetensors implicit
source "$(dirname "$0")/../common.sh"

search() {
    local flags=(--queries 1,320,3200)
    [ "$quick" = 1 ] && flags=(--queries 1,64 --actions 5000 --repetitions 1)
    slate bench search "${flags[@]}" --json >"$out/search.json"
    python3 - "$out" <<'PYTHON' | tee "$out/search.md"
import json, sys
found = json.load(open(f"{sys.argv[1]}/search.json"))
print(f"L = {found['latent_dim']}, {found['threads']} threads; a plain product: {found['product_gflops']:.0f} GFLOP/s\n")
print("| P | queries | K | milliseconds | share of the product's rate |\n|---|---|---|---|---|")
for cell in found["searches"]:
    print(f"| {cell['actions']:,} | {cell['queries']} | {cell['slate_size']} | {cell['milliseconds']:.1f} | {100 * cell['share']:.0f} % |")
PYTHON
}

# The same for all searches, whatever the presets become: relative σ, θ at the identity, a graph of 12.
settings=(--preset paper --slate-size 5 --set tower.initial=identity --set 'method.sigma=relative(0.3)'
    --set method.radial=project --set method.baseline=leave-one-out --set retrieval.exclude_observed=true
    --set retrieval.hnsw.connectivity=12 --set retrieval.hnsw.ef_construction=128
    --set retrieval.hnsw.ef_search=48 --set retrieval.hnsw.scalar=f16)

growth() {
    local actions samples search steps data
    rm -f "$out/growth.jsonl"
    for actions in ${ACTIONS:-$(pick "50000 200000 750000 2230000" "2000 4000")}; do
        data=$work/growth-$actions
        if [ ! -e "$data/prepare.toml" ]; then
            slate synth --users "$(pick 40000 1000)" --actions "$actions" --out "$data.parquet" --force \
                --density "$(python3 -c "print($(pick 100 30) / $actions)")" --ceiling-users 10 >/dev/null
            slate prepare "$data.parquet" --user-column user_id --item-column item_id --out "$data" --latent-dim 100 --no-index
            rm "$data.parquet"
        fi
        for samples in $(pick "1 10 100" "1 10"); do
            for search in "lgp 0" "lgp-mips 0" "lgp-mips 100"; do
                read -r method candidates <<<"$search"
                [ "$samples $candidates" != "1 100" ] || continue # one sample shares nothing
                # About five seconds each; a step of exact search is 200·P·S·32 operations.
                steps=$(python3 -c "print(max(3, min(1000, int(5e11 / (6400 * $actions * $samples)) if '$method' == 'lgp' else int(3000 / $samples))))")
                [ "$quick" = 1 ] && steps=3
                slate bench step "$data" --json "${settings[@]}" --method "$method" --samples "$samples" --steps "$steps" \
                    --set "method.candidates=$candidates" >"$work/step.json"
                python3 -c "import json
print(json.dumps({'actions': $actions, 'samples': $samples, 'method': '$method', 'shared': $candidates, **json.load(open('$work/step.json'))}))" >>"$out/growth.jsonl"
            done
        done
    done
    python3 - "$out" <<'PYTHON' | tee "$out/growth.md"
import json, sys
rows = [json.loads(line) for line in open(f"{sys.argv[1]}/growth.jsonl")]
def cell(*key):
    row = next((row for row in rows if (row["samples"], row["actions"], row["method"], row["shared"]) == key), None)
    if row is None:
        return ""
    audit = row.get("candidates")
    return f"{row['steps_per_second']:.3g}" + (f" ({audit['recall']:.3f}{'' if audit['used'] else ', not used'})" if audit else "")
print("| S | P | exact | graph | shared candidates (coverage) |\n|---|---|---|---|---|")
for samples, actions in sorted({(row["samples"], row["actions"]) for row in rows}):
    cells = [cell(samples, actions, *search) for search in (("lgp", 0), ("lgp-mips", 0), ("lgp-mips", 100))]
    print(f"| {samples} | {actions:,} | " + " | ".join(cells) + " |")
PYTHON
}

race() {
    prepare_gowalla "$work/paper" --preset paper
    "$python" "$PEERS/from_prepared.py" "$work/paper" "$work/paper.npz"
    "$python" "$here/race.py" "$SLATE" "$PEERS/torch_faiss_lgp.py" "$work/paper" "$out" --seconds "$(pick 10 1)" --rounds "$(pick 3 1)"
}

als() {
    local log=("$files/gowalla/checkins.parquet" --user-column user_id --item-column location_id)
    if [ "$quick" = 1 ]; then
        slate synth --users 1000 --actions 2000 --density 0.02 --out "$work/als.csv" --force >/dev/null
        log=("$work/als.csv" --user-column user_id --item-column item_id --factors 8 --repetitions 1)
    fi
    "$python" "$here/als_implicit.py" "$SLATE" "${log[@]}" --out "$out/als.json" | tee "$out/als.md"
}

run_stages "search growth" "$@"
