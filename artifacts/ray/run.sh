#!/usr/bin/env bash
# What shards cost on one machine: a search, a training step and a batch beside one process; and what is
# left of a training, a batch and a decomposition whose processes are killed. PYTHON has the wheel with ray
# (`pip install './python[ray]'`) and polars.
# usage: artifacts/ray/run.sh OUT [overhead|kills]...
source "$(dirname "$0")/../common.sh"
if [ "$quick" = 1 ]; then
    slate synth --users 500 --actions 1000 --density 0.05 --out "$work/log.csv" --force >/dev/null
    log=("$work/log.csv" --user-column user_id --item-column item_id --embeddings svd --latent-dim 16)
else
    log=("$files/gowalla/checkins.parquet" --user-column user_id --item-column location_id --embeddings svd --latent-dim 512)
fi
if [ ! -e "$work/whole/bundle.toml" ]; then
    slate prepare "${log[@]}" --out "$work/data"
    slate train --data "$work/data" --out "$work/run" --steps 1 --set context.folds=0
    for count in 1 2 4; do
        mkdir -p "$work/$count"
        slate export "$work/run" --out "$work/$count/whole" --histories --index=false --shards "$count"
    done
    slate export "$work/run" --out "$work/whole" --histories --index=false
fi
if [ ! -e "$work/log/log.parquet" ]; then
    mkdir -p "$work/log"
    "$python" -c '
import sys
import polars as pl
table = pl.read_csv(sys.argv[1]) if sys.argv[1].endswith(".csv") else pl.read_parquet(sys.argv[1])
table.select(user_id=sys.argv[2], item_id=sys.argv[3]).write_parquet(sys.argv[4])
' "${log[0]}" "${log[2]}" "${log[4]}" "$work/log/log.parquet"
fi

overhead() { "$python" "$here/overhead.py" "$work" "$(pick 1000 20)" "$(pick 5 1)" | tee "$out/overhead.jsonl"; }
kills() { "$python" "$here/kills.py" "$work" "$(pick 3000 50)" | tee "$out/kills.jsonl"; }

run_stages "overhead kills" "$@"
