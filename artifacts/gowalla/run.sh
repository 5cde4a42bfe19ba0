#!/usr/bin/env bash
# The Gowalla numbers of the README: both presets, three seeds of the default one with the radial
# part projected out (the default) and kept.
# usage: artifacts/gowalla/run.sh path/to/checkins.parquet   (columns user_id, location_id)
set -euo pipefail
checkins=$1
out=$(mktemp -d)
read -ra slate <<<"${SLATE:-cargo run --quiet --release --}"   # or SLATE=path/to/slate
"${slate[@]}" prepare "$checkins" --user-column user_id --item-column location_id --out "$out/default" --normalization 0
"${slate[@]}" prepare "$checkins" --user-column user_id --item-column location_id --out "$out/paper" --preset paper
"${slate[@]}" train --data "$out/paper" --out "$out/paper-run" --preset paper --samples 10 --slate-size 5 --steps 5000
for radial in project keep; do
    for seed in 0 1 2; do
        "${slate[@]}" train --data "$out/default" --out "$out/$radial-$seed" --seed "$seed" --steps 3000 --config artifacts/former.toml --set "policy.radial=$radial" --set retrieval.candidates=0
    done
done
