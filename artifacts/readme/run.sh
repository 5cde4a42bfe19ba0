#!/usr/bin/env bash
# The README's session on ml-latest-small; test users. FILES holds ml-latest-small.
# usage: artifacts/readme/run.sh OUT [session]
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
    slate evaluate "$work/run-$name" --against "$against" --tune 60 --json >"$out/$name.json"
    record "$name-evaluate" evaluate "$work/run-$name" --against "$against" --tune 60
}

session() {
    local log=("$files/ml-latest-small") items=260,1196,1210
    if [ "$quick" = 1 ]; then
        slate synth --users 500 --actions 1000 --density 0.05 --out "$work/log.csv" --force >/dev/null
        log=("$work/log.csv" --user-column user_id --item-column item_id --within 2) items=3,17,250
    fi
    judged session popularity,item-knn,ease "$(pick "" "--steps 20")" "${log[@]}"
    record session-recommend recommend "$work/run-session" --items "$items"
}

run_stages session "$@"
sed -i "s|$work/||g; s|$files/||g" "$out"/*.txt "$out"/*.json
