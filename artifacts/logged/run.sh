#!/usr/bin/env bash
# How well a log says what another policy would earn, over logs of a simulated world whose truth is known: bias, error
# and coverage of each estimator, and the error over K and over P.
# usage: artifacts/logged/run.sh OUT [coverage|growth|loop]
#   coverage, growth  OFF_POLICY is the example's command [default: built first]
#   loop              ten rounds of `slate simulate` for each of SEEDS [default: 1 to 20]
source "$(dirname "$0")/../common.sh"

study() {
    if [ -z "${OFF_POLICY:-}" ]; then
        cargo build --quiet --release --manifest-path "$root/Cargo.toml" --example off_policy
        OFF_POLICY=${CARGO_TARGET_DIR:-$root/target}/release/examples/off_policy
    fi
    "$OFF_POLICY" "$1" $(pick "" --quick) >"$out/$1.jsonl"
    python3 "$here/table.py" "$out/$1.jsonl" | tee "$out/$1.md"
}
coverage() { study coverage; }
growth() { study growth; }

loop() {
    local seed
    for seed in ${SEEDS:-$(pick "$(seq 20)" 1)}; do
        rm -rf "$work/loop"
        slate simulate --seed "$seed" --out "$work/loop" --json $(pick "" "--rounds 1 --users 500 --requests 2000 --steps 20") \
            | sed "s|$work/||g" >"$out/loop-$seed.json"
    done
    python3 "$here/loop.py" "$out" | tee "$out/loop.md"
}

run_stages "coverage growth loop" "$@"
