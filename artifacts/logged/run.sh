#!/usr/bin/env bash
# How well a log says what another policy would earn, over logs of a simulated world whose truth is known: bias, error
# and coverage of each estimator, and the error over K and over P.
# usage: artifacts/logged/run.sh OUT [coverage|growth|steps|loop|direct]
#   coverage, growth  OFF_POLICY is the example's command [default: built first]
#   steps             seconds of 1 000 and 2 000 steps on logs of servers with 1 000 to 2.23 M items: PYTHON has pyarrow,
#                     WORK needs 6 GB
#   loop              ten rounds of `slate simulate` for each of SEEDS [default: 1 to 20]
#   direct            the same with `--estimate direct` [default: 1 to 3]
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

steps() {
    rm -f "$out/steps.jsonl"
    local actions density
    for actions in $(pick "1000 100000 2230000" "500 1000"); do
        rm -rf "$work/steps"
        mkdir "$work/steps"
        density=$(python3 -c "print(45 / $actions)")
        slate synth --users "$(pick 20000 500)" --actions "$actions" --density "$density" --out "$work/steps/log.parquet" \
            --ceiling-users 10 >/dev/null
        slate prepare "$work/steps/log.parquet" --user-column user_id --item-column item_id --out "$work/steps/data" \
            --embeddings svd --latent-dim "$(pick 100 16)" >/dev/null
        slate train --data "$work/steps/data" --out "$work/steps/run" --steps 5 --set context.folds=0 >/dev/null
        slate export "$work/steps/run" --out "$work/steps/bundle" --histories --index >/dev/null
        "$python" "$here/explore.py" "$SLATE" "$work/steps/bundle" "$work/steps/shown" "$(pick 8000 1000)"
        slate train --logged "$work/steps/shown" --from "$work/steps/run" --out "$work/steps/learned" --steps "$(pick 2000 20)" \
            --set evaluation.patience=0 --set evaluation.count=2 >/dev/null
        grep '"evaluation"' "$work/steps/learned/metrics.jsonl" | sed "s/^{/{\"actions\":$actions,/" | tee -a "$out/steps.jsonl"
    done
}

# Loops to NAME-SEED.json, and their table to NAME.md: loops NAME LAST_SEED FLAG...
loops() {
    local name=$1 last=$2 seed
    shift 2
    for seed in ${SEEDS:-$(seq "$(pick "$last" 1)")}; do
        rm -rf "$work/loop"
        slate simulate --seed "$seed" --out "$work/loop" --json "$@" \
            $(pick "" "--rounds 1 --users 500 --requests 2000 --steps 20") | sed "s|$work/||g" >"$out/$name-$seed.json"
    done
    python3 "$here/loop.py" "$out" "$name" | tee "$out/$name.md"
}
loop() { loops loop 20; }
direct() { loops direct 3 --estimate direct; }

run_stages "$(pick "coverage growth steps loop direct" "coverage growth loop direct")" "$@"
