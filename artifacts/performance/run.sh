#!/usr/bin/env bash
# Everything in this folder: the race against PyTorch + FAISS on Gowalla, exact search beside the
# machine's product rate, and how a step grows with the catalogue.
# usage: artifacts/performance/run.sh path/to/checkins.parquet PEERS OUT
#   PEERS: a folder with torch_faiss_lgp.py and from_prepared.py (what they take and print is said
#   in race.py); PYTHON: has numpy scipy polars safetensors faiss-cpu torch matplotlib
set -euo pipefail
checkins=$1 peers=$2 out=$3 here=$(dirname "$0") python=${PYTHON:-python3}
slate=${SLATE:-target/release/slate}   # built before: nothing may compile while something is measured
work=$(mktemp -d)
mkdir -p "$out"
for preset in paper default; do
    "$slate" prepare "$checkins" --user-column user_id --item-column location_id --out "$work/$preset" --preset "$preset" --normalization 0
done
"$python" "$peers/from_prepared.py" "$work/paper" "$work/paper.npz"
"$python" "$peers/from_prepared.py" "$work/default" "$work/default.npz" 0.5
"$python" "$here/race.py" "$slate" "$peers/torch_faiss_lgp.py" "$work/paper" "$work/default" "$out" --seconds "${SECONDS_EACH:-15}"
"$slate" bench search | tee "$out/search.txt"
for seed in 0 1 2; do   # what shared candidates change, after the same steps
    for candidates in 0 32; do
        "$slate" train --data "$work/default" --out "$work/run-$seed-$candidates" --seed "$seed" --steps 3000 --config artifacts/former.toml --set "retrieval.candidates=$candidates" >/dev/null 2>&1
    done
    "$slate" evaluate "$work/run-$seed-40" --against "$work/run-$seed-0" --checkpoint last | tail -1
done | tee "$out/candidates.txt"
[ "${GROWTH:-yes}" = no ] || "$python" "$here/growth.py" "$slate" "$peers" "$work/default" "$work/growth" "$out"
