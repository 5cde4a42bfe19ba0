#!/usr/bin/env bash
# How fast a bundle answers: over HTTP under load, in process, as a batch, beside `implicit`; how long it
# takes to be ready. SLATE has the features serve and train.
# usage: artifacts/serving/run.sh OUT [bundles|load|connections|degraded|process|ready|batch|goodreads|implicit|table]...
#   bundles   Gowalla at L = 512 and a made-up log of GoodReads' shape at L = 100, 400 000 users and 2.23 M items with
#             eight interactions each; each with an index that finds 0.95 of the true top 5, and one (-50) for 0.96 of the top 50;
#             WORK needs 12 GB
#   load      requests a second and their times: OHA is the load generator's command [default: oha], PYTHON has pyarrow
#   connections  memory before, while and after 5 000 connections are open
#   degraded  a front over four shards of Gowalla, one of which is killed under load and comes back: PYTHON has pyarrow
#   process   one slate alone and many at once, without HTTP
#   ready     seconds from the start of `slate serve` to its first answer, and memory: f16 and f32, read and mapped;
#             where /proc/sys/vm/drop_caches may be written, also with nothing of the files in memory
#   batch     all users of Gowalla through `slate recommend --users`, whole and in four parts that are joined
#   goodreads all users of the large bundle, K = 50, through its index, whole and in four parts that are joined;
#             10 000 of them exactly: PYTHON has pyarrow
#   implicit  the same factors in `implicit`: PYTHON has implicit numpy pyarrow safetensors scipy usearch
source "$(dirname "$0")/../common.sh"
oha=${OHA:-oha}
names=(gowalla large)

# The bundles of a run: its index for slates of 5, and for 50: NAME RUN FLAG...
exported() {
    local name=$1 run=$2
    shift 2
    slate export "$run" --out "$work/$name" --histories --index --recall 0.95 "$@"
    slate export "$run" --out "$work/$name-50" --histories --index --recall 0.96 -k "$(pick 50 10)" "$@"
}

bundles() {
    if [ ! -e "$work/gowalla-50/bundle.toml" ]; then
        prepare_gowalla "$work/gowalla-data" --embeddings svd --latent-dim "$(pick 512 16)"
        rm -rf "$work/gowalla-run"
        slate train --data "$work/gowalla-data" --out "$work/gowalla-run" --steps "$(pick 200 5)" >/dev/null
        exported gowalla "$work/gowalla-run"
    fi
    if [ ! -e "$work/large-50/bundle.toml" ]; then
        local shape=(--users "$(pick 400000 2000)" --actions "$(pick 2230000 3000)" --density "$(pick 0.00002 0.01)")
        slate synth "${shape[@]}" --out "$work/large.parquet" --ceiling-users 10 --force >/dev/null
        slate prepare "$work/large.parquet" --user-column user_id --item-column item_id --out "$work/large-data" \
            --embeddings svd --latent-dim "$(pick 100 16)"
        rm -rf "$work/large-run"
        # What is learned does not matter here, so nothing is fitted again for folds.
        slate train --data "$work/large-data" --out "$work/large-run" --steps 5 --set context.folds=0 >/dev/null
        exported large "$work/large-run" --scalar f16
        slate export "$work/large-run" --out "$work/large-f32" --histories --index --recall 0.95
    fi
}

load() {
    for name in "${names[@]}"; do
        for search in index exact; do
            for pinned in pinned free; do
                "$python" "$here/load.py" "$SLATE" "$oha" "$work/$name" "$search" "$pinned" "$(pick 8 1)" \
                    | tee "$out/load-$name-$search-$pinned.json"
            done
        done
    done
}

process() {
    for name in "${names[@]}"; do
        slate bench slates "$work/$name" --users "$(pick 1000 50)" --json >"$out/process-$name.json"
        cat "$out/process-$name.json"
    done
}

ready() {
    local name
    rm -f "$out/ready.jsonl"
    for name in gowalla large large-f32; do
        for flags in "" "--mmap"; do
            for run in 1 2 3; do python3 "$here/ready.py" "$SLATE" "$work/$name" $flags; done >>"$out/ready.jsonl"
            if [ -w /proc/sys/vm/drop_caches ]; then python3 "$here/ready.py" "$SLATE" "$work/$name" --cold $flags >>"$out/ready.jsonl"; fi
        done
    done
}

connections() {
    python3 "$here/connections.py" "$SLATE" "$work/gowalla" "$(pick 5000 50)" | tee "$out/connections.json"
}

degraded() {
    local folder=$work/gowalla-shards
    if [ ! -e "$folder/whole/bundle.toml" ]; then
        mkdir -p "$folder"
        slate export "$work/gowalla-run" --out "$folder/whole" --histories --index=false --shards 4
    fi
    "$python" "$here/degraded.py" "$SLATE" "$folder" 4 "$(pick 20 2)" | tee "$out/degraded.jsonl"
}

# A file of users in one run and in four parts, which are joined and compared: NAME BUNDLE USERS K FLAG...
answered() {
    local name=$1 bundle=$2 users=$3 k=$4 part parts=()
    shift 4
    watch "$out/batch-$name.jsonl" "$SLATE" recommend "$bundle" --users "$users" --out "$work/slates.parquet" -k "$k" "$@"
    for part in 1 2 3 4; do
        parts+=("$work/slates-$part.parquet")
        RAYON_NUM_THREADS=$((part % 2 + 1)) watch "$out/batch-$name.jsonl" \
            "$SLATE" recommend "$bundle" --users "$users" --out "$work/slates-$part.parquet" -k "$k" --part "$part/4" "$@"
    done
    rm -f "$work/joined.parquet"
    watch "$out/batch-$name.jsonl" "$SLATE" join "${parts[@]}" --out "$work/joined.parquet"
    cmp "$work/slates.parquet" "$work/joined.parquet"
    echo "$name: four parts on one and on two threads join to the whole, byte for byte"
}

batch() {
    rm -f "$out/batch-gowalla.jsonl"
    cp "$work/gowalla/users.parquet" "$work/users.parquet"
    answered gowalla "$work/gowalla-50" "$work/users.parquet" "$(pick 50 10)"
}

goodreads() {
    rm -f "$out"/batch-goodreads*.jsonl
    cp "$work/large-50/users.parquet" "$work/many.parquet"
    answered goodreads "$work/large-50" "$work/many.parquet" "$(pick 50 10)"
    "$python" "$here/users.py" "$work/large-50" "$(pick 10000 100)" "$work/few.parquet"
    answered goodreads-exact "$work/large-50" "$work/few.parquet" "$(pick 50 10)" --exact
    slate bench slates "$work/large-50" --users 1000 -k "$(pick 50 10)" --json | tee "$out/recall-goodreads.json"
}

implicit() {
    "$python" "$here/implicit_recommend.py" "$SLATE" "$work/gowalla" "$work/gowalla-50" --out "$out/implicit.json"
}

table() {
    python3 "$here/table.py" "$out" | tee "$out/table.md"
}

run_stages "$(pick "bundles load connections degraded process ready batch goodreads implicit table" "bundles connections process ready batch")" "$@"
