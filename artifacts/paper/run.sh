#!/usr/bin/env bash
# Reports of `slate compare` on the grids in examples/paper, which are named GRID:SCALE (`-` for none).
# One thread a training; the report goes to OUT/GRID, less the page and the trainings.
# usage: artifacts/paper/run.sh OUT [GRID:SCALE]...      [default: quick:- table_time:gowalla slate_size:gowalla]
# FILES holds gowalla/checkins.parquet; WORK needs 1 GB for these, 30 GB for figure_1:shapes and cost:paper.
source "$(dirname "$0")/../common.sh"

grids=("$@")
[ ${#grids[@]} -gt 0 ] || read -ra grids <<<"$(pick "quick:- table_time:gowalla slate_size:gowalla" "quick:-")"
for grid in "${grids[@]}"; do
    name=${grid%:*} scale=${grid#*:} flags=()
    [ "$scale" = - ] || flags=(--scale "$scale" --files "$files")
    echo "== $grid"
    cp "$root/examples/paper/$name.toml" "$work/$name.toml"
    if [ "$quick" = 1 ]; then # one second a cell, and fewer cells
        sed -i 's/^samples = \[.*/samples = [10]/; s/^seeds = .*/seeds = [0]/; s/^budget = .*/budget = "1 s"/' "$work/$name.toml"
    fi
    RAYON_NUM_THREADS=1 slate compare "$work/$name.toml" "${flags[@]}" --out "$work/$name"
    rm -rf "${out:?}/$name"
    mkdir -p "$out/$name"
    cp -r "$work/$name/report.md" "$work/$name/results.parquet" "$work/$name/figures" "$out/$name"
    sed -i "s|$work/||g; s|$files/||g; s|$root/||g" "$out/$name/report.md"
done
