#!/usr/bin/env bash
# What shards cost on one machine: a search, a training step and a batch beside one process; what they change;
# what is left of a training, a batch and a decomposition whose processes are killed; and a decomposition by actors
# beside one process, on the shapes of the paper's data sets (WORK needs 20 GB). PYTHON has the wheel with ray (`pip
# install './python[ray]'`) and polars; SLATE may be its `slate`.
# usage: artifacts/ray/run.sh OUT [overhead|model|identical|kills|shapes]...
source "$(dirname "$0")/../common.sh"
columns=(--user-column user_id --item-column)

# A prepared folder, a run on it, and its bundle whole and in 1, 2 and 4 shards, unless they are there: FOLDER LOG ITEM LENGTH
bundles() {
    local folder=$1 log=$2 item=$3 length=$4
    [ ! -e "$folder/whole/bundle.toml" ] || return 0
    [ -e "$folder/data/prepare.toml" ] \
        || slate prepare "$log" "${columns[@]}" "$item" --min-user-interactions 20 --embeddings svd --latent-dim "$length" --no-index --out "$folder/data"
    rm -rf "$folder/run"
    slate train --data "$folder/data" --out "$folder/run" --steps 1 --method lgp --set context.folds=0
    for count in 1 2 4; do
        mkdir -p "$folder/$count"
        slate export "$folder/run" --out "$folder/$count/whole" --histories --index=false --shards "$count"
    done
    slate export "$folder/run" --out "$folder/whole" --histories --index=false
}

# Gowalla, or with QUICK a small made-up log.
gowalla() {
    local log=$files/gowalla/checkins.parquet item=location_id
    if [ "$quick" = 1 ]; then
        log=$work/log.csv item=item_id
        slate synth --users 500 --actions 1000 --density 0.05 --out "$log" --force >/dev/null
    fi
    bundles "$work/gowalla" "$log" "$item" "$(pick 512 16)"
    [ ! -e "$work/gowalla/log/log.parquet" ] || return 0
    mkdir -p "$work/gowalla/log"
    "$python" -c '
import sys
import polars as pl
table = pl.read_csv(sys.argv[1]) if sys.argv[1].endswith(".csv") else pl.read_parquet(sys.argv[1])
table.select(user_id="user_id", item_id=sys.argv[2]).write_parquet(sys.argv[3])
' "$log" "$item" "$work/gowalla/log/log.parquet"
}

# A log of the shape of a data set of the paper, prepared: NAME
shape() {
    local like=(--like "$1")
    [ "$quick" != 1 ] || like=(--users 2000 --actions 4000 --density 0.01)
    mkdir -p "$work/$1"
    [ -e "$work/$1/log.parquet" ] || slate synth "${like[@]}" --out "$work/$1/log.parquet" --ceiling-users 10 >/dev/null
    [ -e "$work/$1/data/prepare.toml" ] \
        || slate prepare "$work/$1/log.parquet" "${columns[@]}" item_id --embeddings svd --latent-dim 100 --no-index --out "$work/$1/data"
}

overhead() {
    gowalla
    "$python" "$here/overhead.py" "$work/gowalla" "$(pick 3000 20)" "$(pick 85 1)" | tee "$out/overhead.jsonl"
}
model() { python3 "$here/model.py" "$out/overhead.jsonl" | tee "$out/model.md"; }
identical() {
    gowalla
    "$python" "$here/identical.py" "$work/gowalla" "$(pick 500 20)" 2000 | tee "$out/identical.jsonl"
    [ "$quick" != 1 ] || return 0
    shape goodreads
    # Few users are judged: exactly, a judgement of all takes longer than a training.
    mkdir -p "$work/catalogue"
    [ -e "$work/catalogue/data/prepare.toml" ] || slate prepare "$work/goodreads/log.parquet" "${columns[@]}" item_id --embeddings svd \
        --latent-dim 100 --no-index --validation-share 0.001 --test-share 0.001 --out "$work/catalogue/data"
    bundles "$work/catalogue" "$work/goodreads/log.parquet" item_id 100
    "$python" "$here/identical.py" "$work/catalogue" 100 500 | tee -a "$out/identical.jsonl"
}
kills() {
    gowalla
    "$python" "$here/kills.py" "$work/gowalla" "$(pick 3000 50)" | tee "$out/kills.jsonl"
}
shapes() {
    rm -f "$out/shapes.jsonl"
    for name in movielens-25m goodreads; do
        shape "$name"
        SLATE="$SLATE" "$python" "$here/shapes.py" "$work/$name" 4 | tee -a "$out/shapes.jsonl"
    done
}

run_stages "overhead model identical kills shapes" "$@"
