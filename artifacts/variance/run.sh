#!/usr/bin/env bash
# How noisy the gradients are: over methods and slate sizes, along trainings, and for learning β.
# usage: artifacts/variance/run.sh path/to/checkins.parquet   (columns user_id, location_id)
set -euo pipefail
checkins=$1
out=$(mktemp -d)
read -ra slate <<<"${SLATE:-cargo run --quiet --release --}"   # or SLATE=path/to/slate
"${slate[@]}" prepare "$checkins" --user-column user_id --item-column location_id --out "$out/data" --normalization 0

# One sample, no baseline, exact search, σ = 1/B, everything from θ = I.
study=(--config artifacts/former.toml --samples 1 --set retrieval.kind=exact --set policy.sigma=inverse-norm
    --set policy.radial=keep --set estimator.baseline=none)
for power in 0.5 1; do
    "${slate[@]}" variance "$out/data" "${study[@]}" --set "embedding.power=$power" --draws 100 \
        --methods lgp,pl-pg,pl-rank,covariance --slate-sizes 2,5,10 --sample-sizes 1
done
train() {
    local name=$1
    shift
    echo "== $name"
    "${slate[@]}" train --data "$out/data" --out "$out/$name" "${study[@]}" \
        --set evaluation.gradient_draws=30 --set evaluation.count=3 "$@"
}
for slate_size in 2 5 10; do
    for policy in plackett-luce lgp; do
        train "$policy-$slate_size" --set embedding.power=1 --policy "$policy" \
            --slate-size "$slate_size" --epochs 3
    done
done
for power in 1 0; do
    for learn in false true; do
        train "learn-beta-$learn-power-$power" --set "embedding.power=$power" \
            --set "embedding.learn=$learn" --policy plackett-luce --slate-size 2 --epochs 1
    done
done
