#!/usr/bin/env bash
# Steps of PL-PG and PL-Rank at P = 2.23 million, S = 100, K = 5, batch 32: seconds and memory.
set -euo pipefail
for method in pl-pg pl-rank; do
    /usr/bin/time -f "$method: %M KiB at most, %e s in all" \
        cargo run --quiet --release --example large_catalogue -- "$method"
done
