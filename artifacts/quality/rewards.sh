#!/usr/bin/env bash
# A policy trained for each of three rewards, judged by each of the three: three seeds.
# usage: artifacts/quality/rewards.sh path/to/checkins.parquet OUT
set -euo pipefail
checkins=$1 out=$2
read -ra slate <<<"${SLATE:-cargo run --quiet --release --}"   # or SLATE=path/to/slate
rewards=(discounted hits diverse-any-hit)
mkdir -p "$out"
for seed in 0 1 2; do
    data=$out/data-$seed
    [ -d "$data" ] || "${slate[@]}" prepare "$checkins" --user-column user_id --item-column location_id \
        --out "$data" --seed "$seed" --no-index
    for reward in "${rewards[@]}"; do
        [ -d "$out/$reward-$seed" ] || "${slate[@]}" train --data "$data" --out "$out/$reward-$seed" \
            --seed "$seed" --slate-size 20 --steps 3000 --set "reward.kind=$reward" --set evaluation.count=5 \
            --set retrieval.kind=exact --set retrieval.candidates=120 --set policy.samples=30 \
            --set optimizer.learning_rate=3e-3 --set 'policy.sigma=relative(0.15)'
    done
    for judge in "${rewards[@]}"; do
        others=()
        for reward in "${rewards[@]}"; do [ "$reward" = "$judge" ] || others+=("$out/$reward-$seed"); done
        "${slate[@]}" evaluate "$out/$judge-$seed" --against "$(IFS=,; echo "${others[*]}")" --json \
            >"$out/by-$judge-$seed.json"
    done
done
