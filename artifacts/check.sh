#!/usr/bin/env bash
# Runs every script here in QUICK mode, those stages that need no Python package and no file: shows that
# they run, in three minutes on two cores. Its numbers say nothing.
# usage: artifacts/check.sh      (SLATE: the command to run [default: a release build of this checkout])
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${SLATE:-}" ]; then
    cargo build --quiet --release
    SLATE=${CARGO_TARGET_DIR:-target}/release/slate
fi
SLATE=$(realpath "$SLATE")
export SLATE QUICK=1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
scripts=(readme quality performance plackett_luce variance scale serving reliability logged paper)
if "$SLATE" info devices | grep -q '^wgpu .*tensors'; then
    scripts+=(gpu)
else
    echo "LEFT OUT: artifacts/gpu/run.sh: $SLATE has no adapter of wgpu"
fi
for script in "${scripts[@]}"; do
    started=$SECONDS
    if ! artifacts/$script/run.sh "$out/$script" >"$out/log" 2>&1; then
        tail -n 40 "$out/log" >&2
        echo "artifacts/$script/run.sh failed" >&2
        exit 1
    fi
    find "$out/$script" -type f | grep -qE '\.(json|jsonl|parquet)$' || { echo "artifacts/$script/run.sh left no raw results" >&2; exit 1; }
    echo "artifacts/$script/run.sh: $((SECONDS - started)) s"
done
echo "all of artifacts: $SECONDS s"
