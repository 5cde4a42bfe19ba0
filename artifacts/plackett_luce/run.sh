#!/usr/bin/env bash
# Steps of Plackett–Luce among 2.23 million actions (GoodReads' number of books), S = 100, K = 5,
# batches of 32, L = 100, where the paper's tables have no number: seconds and memory.
# usage: artifacts/plackett_luce/run.sh OUT      (WORK needs 3 GB)
source "$(dirname "$0")/../common.sh"

steps() {
    local data=$work/plackett-luce actions method
    actions=$(pick 2230000 3000)
    if [ ! -e "$data/prepare.toml" ]; then
        slate synth --users "$(pick 40000 1000)" --actions "$actions" --out "$data.parquet" --force --ceiling-users 10 \
            --density "$(python3 -c "print($(pick 100 30) / $actions)")" >/dev/null
        slate prepare "$data.parquet" --user-column user_id --item-column item_id --out "$data" --preset paper --no-index
    fi
    rm -f "$out/steps.jsonl"
    for method in pl-pg pl-rank; do
        watch "$work/memory.jsonl" "$SLATE" bench step "$data" --preset paper --method "$method" --samples 100 --slate-size 5 \
            --steps "$(pick 10 2)" --json >"$work/step.json"
        python3 -c "import json
memory = json.loads(open('$work/memory.jsonl').readlines()[-1])
print(json.dumps({'method': '$method', 'actions': $actions, **json.load(open('$work/step.json')), **memory}))" >>"$out/steps.jsonl"
    done
    sed -i "s|$SLATE|slate|g; s|$work/||g" "$out/steps.jsonl"
    python3 - "$out" <<'PYTHON' | tee "$out/steps.md"
import json, sys
print("| | seconds a step | peak memory of the process |\n|---|---|---|")
for row in map(json.loads, open(f"{sys.argv[1]}/steps.jsonl")):
    print(f"| `{row['method']}` | {1 / row['steps_per_second']:.3f} | {row['resident_gib']:.2f} GiB |")
PYTHON
}

run_stages steps "$@"
