#!/usr/bin/env bash
# The numbers of the README: its session on ml-latest-small, and what the default settings earn beside
# simple recommenders on Amazon CDs; test users. FILES holds ml-latest-small and amazon_cds.
# usage: artifacts/readme/run.sh OUT [session|cds]...
source "$(dirname "$0")/../common.sh"

# What a command prints, as text and as JSON: NAME COMMAND...
record() {
    local name=$1
    shift
    slate "$@" | tee "$out/$name.txt"
}

# A log prepared, trained on and judged: NAME BASELINES "TRAIN FLAG..." PREPARE...
judged() {
    local name=$1 against=$2 flags
    read -ra flags <<<"$3"
    shift 3
    rm -rf "${work:?}/$name" "$work/run-$name"
    record "$name-prepare" prepare "$@" --out "$work/$name"
    slate train --data "$work/$name" --out "$work/run-$name" "${flags[@]}" 2>&1 | tee "$out/$name-train.txt"
    slate evaluate "$work/run-$name" --against "$against" --json >"$out/$name.json"
    record "$name-evaluate" evaluate "$work/run-$name" --against "$against"
}

session() {
    local log=("$files/ml-latest-small") items=260,1196,1210
    if [ "$quick" = 1 ]; then
        slate synth --users 500 --actions 1000 --density 0.05 --out "$work/log.csv" --force >/dev/null
        log=("$work/log.csv" --user-column user_id --item-column item_id) items=3,17,250
    fi
    judged session popularity,item-knn,ease "--steps $(pick 1000 20)" "${log[@]}"
    record session-recommend recommend "$work/run-session" --items "$items"
}

cds() {
    local log=("$files/amazon_cds/interactions.parquet" --user-column user_id --item-column item_id)
    if [ "$quick" = 1 ]; then
        slate synth --users 500 --actions 1000 --density 0.05 --out "$work/log.csv" --force >/dev/null
        log=("$work/log.csv" --user-column user_id --item-column item_id)
    fi
    judged cds popularity,svd,als,ease,item-knn "$(pick "" "--steps 20")" "${log[@]}"
}

run_stages "session cds" "$@"
sed -i "s|$work/||g; s|$files/||g" "$out"/*.txt "$out"/*.json
