#!/usr/bin/env bash
# How fast a bundle answers: over HTTP under load, in process, as a batch, beside `implicit`; how long it
# takes to be ready. SLATE has the features serve and train.
# usage: artifacts/serving/run.sh OUT [bundles|load|process|ready|batch|implicit|table]...
#   bundles   Gowalla at L = 512 and made-up vectors at 2.23 M × 100, each with an index; WORK needs 8 GB
#   load      requests a second and their times: OHA is the load generator's command [default: oha], PYTHON has pyarrow
#   process   one slate alone and many at once, without HTTP
#   ready     seconds from the start of `slate serve` to its first answer, and memory
#   batch     all users of Gowalla through `slate recommend --users`, whole and in four parts
#   implicit  the same factors in `implicit`: PYTHON has implicit numpy pyarrow safetensors scipy usearch
source "$(dirname "$0")/../common.sh"
oha=${OHA:-oha}
names=(gowalla large)

bundles() {
    if [ ! -e "$work/gowalla/bundle.toml" ]; then
        prepare_gowalla "$work/gowalla-data" --embeddings svd --latent-dim "$(pick 512 16)"
        rm -rf "$work/gowalla-run"
        slate train --data "$work/gowalla-data" --out "$work/gowalla-run" --steps "$(pick 200 5)" >/dev/null
        slate export "$work/gowalla-run" --out "$work/gowalla" --histories --index
    fi
    if [ ! -e "$work/large/bundle.toml" ]; then
        local shape=(--users 20000 --actions "$(pick 2230000 3000)" --density "$(pick 0.0001 0.01)")
        slate synth "${shape[@]}" --out "$work/large.parquet" --ceiling-users 10 --force >/dev/null
        slate prepare "$work/large.parquet" --user-column user_id --item-column item_id --out "$work/large-data" \
            --embeddings svd --latent-dim "$(pick 100 16)"
        rm -rf "$work/large-run"
        slate train --data "$work/large-data" --out "$work/large-run" --steps 5 >/dev/null
        slate export "$work/large-run" --out "$work/large" --histories --index --scalar f16
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
    for name in "${names[@]}"; do
        for run in 1 2 3; do python3 "$here/ready.py" "$SLATE" "$work/$name"; done | tee "$out/ready-$name.jsonl"
    done
}

batch() {
    local bundle=$work/gowalla part
    rm -f "$out/batch.jsonl"
    cp "$bundle/users.parquet" "$work/users.parquet"
    watch "$out/batch.jsonl" "$SLATE" recommend "$bundle" --users "$work/users.parquet" --out "$work/slates.parquet" -k "$(pick 50 5)"
    for part in 1 2 3 4; do
        watch "$out/batch.jsonl" "$SLATE" recommend "$bundle" --users "$work/users.parquet" --out "$work/slates-$part.parquet" -k "$(pick 50 5)" --part "$part/4"
    done
}

implicit() {
    "$python" "$here/implicit_recommend.py" "$SLATE" "$work/gowalla" --out "$out/implicit.json"
}

table() {
    python3 "$here/table.py" "$out" | tee "$out/table.md"
}

run_stages "$(pick "bundles load process ready batch implicit table" "bundles process ready batch")" "$@"
