#!/usr/bin/env bash
# The same policy on top of ALS: the embeddings are those of the ALS that compare.sh tuned (or of
# ALS=..., as in ALS="--latent-dim 512 --confidence 10 --regularization 10"), the context its fold-in.
# usage: artifacts/quality/on_als.sh DATA OUT SET SIZE SEED    (after compare.sh DATA OUT SET)
set -euo pipefail
data=$1 out=$2 set=$3 size=$4 seed=$5
read -ra slate <<<"${SLATE:-cargo run --quiet --release --}"
each=${SECONDS_EACH:-60}
cell=$out/$set-$size-$seed
read -ra als <<<"${ALS:-$(python3 -c '
import json, sys
rows = json.load(open(sys.argv[1]))["against"]
als = next(row for row in rows if row["name"] == "als")["settings"]
print(*(f"--{key.replace(chr(95), chr(45))} {value}" for key, value in als.items()))' "$cell.test.json")}"
case $set in
gowalla) log=("$data/gowalla/checkins.parquet" --user-column user_id --item-column location_id) ;;
movielens) log=("$data/ml-latest-2k") ;;
esac
rm -rf "$cell-als-data"
"${slate[@]}" prepare "${log[@]}" --out "$cell-als-data" --seed "$seed" --no-index --embeddings als "${als[@]}"
"${slate[@]}" tune --data "$cell-als-data" --out "$cell-als" --trials 9 --within "$each" --json \
    --seed "$seed" --slate-size "$size" \
    --set retrieval.kind=exact --set retrieval.candidates=100 \
        --set optimizer.learning_rate=3e-3 --set 'policy.sigma=relative(0.15)' \
    --set evaluation.count=3 --set evaluation.train_contexts=500 \
    --over 'optimizer.learning_rate=3e-4..1e-2' --over 'optimizer.weight_decay=1..30' \
    --over 'policy.sigma=relative(0.1..0.5)' >"$cell-als.tune.json"
best=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["trials"][0]["run"])' "$cell-als.tune.json")
for split in validation test; do
    "${slate[@]}" evaluate "$best" --split $split --json >"$cell-als.$split.json"
done
