#!/usr/bin/env bash
# A policy beside ALS and EASE, each tuned on the validation users for as long; the test users are
# looked at once, at the end of each cell. Three seeds, of the split as of everything else.
# usage: artifacts/quality/compare.sh DATA OUT [gowalla|movielens]...
#   DATA holds gowalla/checkins.parquet and ml-latest-2k; SECONDS_EACH (60) is the time for tuning
set -euo pipefail
data=$1 out=$2
shift 2
read -ra slate <<<"${SLATE:-cargo run --quiet --release --}"   # or SLATE=path/to/slate
each=${SECONDS_EACH:-60}
mkdir -p "$out"
[ $# -gt 0 ] || set -- gowalla movielens
for set in "$@"; do for size in 5 20; do for seed in 0 1 2; do
    case $set in
    gowalla) log=("$data/gowalla/checkins.parquet" --user-column user_id --item-column location_id --latent-dim 512) ;;
    movielens) log=("$data/ml-latest-2k" --latent-dim 200) ;;
    esac
    [ -d "$out/$set-$seed" ] ||
        "${slate[@]}" prepare "${log[@]}" --out "$out/$set-$seed" --seed "$seed" --no-index
    cell=$out/$set-$size-$seed
    [ -s "$cell.test.json" ] && continue
    "${slate[@]}" tune --data "$out/$set-$seed" --out "$cell" --trials 9 --within "$each" --json \
        --seed "$seed" --slate-size "$size" \
        --set retrieval.kind=exact --set retrieval.candidates=100 \
        --set optimizer.learning_rate=3e-3 --set 'policy.sigma=relative(0.15)' \
        --set evaluation.count=3 --set evaluation.train_contexts=500 \
        --over 'embedding.power=0.25|0.5' --over 'context.popularity_power=0|0.25|0.5' \
        --over 'optimizer.learning_rate=3e-4..1e-2' --over 'optimizer.weight_decay=1..30' \
        --over 'policy.sigma=relative(0.1..0.5)' >"$cell.tune.json"
    best=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["trials"][0]["run"])' "$cell.tune.json")
    "${slate[@]}" evaluate "$best" --against als,ease --tune "$each" --split test --json >"$cell.test.json"
done; done; done
