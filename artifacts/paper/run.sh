#!/usr/bin/env bash
# Everything in this folder. FILES holds gowalla/checkins.parquet (columns user_id, location_id);
# OUT needs 30 GB. One thread a training, as many trainings at once as are started by hand.
# usage: artifacts/paper/run.sh FILES OUT [GRID:SCALE...]
set -euo pipefail
files=$1 out=$2
shift 2
grids=("$@")
[ ${#grids[@]} -gt 0 ] || grids=(table_time:gowalla table_iterations:gowalla improvements:gowalla slate_size:gowalla
    fixing_beta:gowalla neural:gowalla figure_1:shapes cost:paper)
slate=${SLATE:-target/release/slate}   # built before: nothing may compile while something is measured
for grid in "${grids[@]}"; do
    RAYON_NUM_THREADS=1 "$slate" compare "examples/paper/${grid%:*}.toml" --scale "${grid#*:}" --files "$files" --out "$out/${grid%:*}"
done
