#!/usr/bin/env bash
# Everything at the size of the paper's data sets. Usage: run.sh PYTHON OUT [STAGE...], with PYTHON one
# that has numpy, scipy, polars, safetensors, pandas and faiss-cpu; stages: shapes race csv damage train.
# OUT needs 30 GB. What is printed goes to OUT/STAGE.log too.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
python="$1" out="$2"
shift 2
stages=("${@:-}")
[ -n "${stages[0]}" ] || stages=(shapes race csv damage train)
slate="${SLATE:-$here/../../target/release/slate}"
mkdir -p "$out"
watch() { echo "\$ slate $*"; python3 "$here/watch.py" "$slate" "$@" 2>&1 || true; }
ids=(--user-column user_id --item-column item_id)
names=(movielens-25m twitch goodreads)

# Logs of the three shapes, prepared; prepared again with other embeddings, and after a kill.
shapes() {
    for name in "${names[@]}"; do
        watch synth --like "$name" --out "$out/$name.parquet" --force
        rm -rf "$out/$name"
        watch prepare "$out/$name.parquet" "${ids[@]}" --out "$out/$name" --normalization 0
    done
    echo "killed after 60 s, then again"
    "$slate" prepare "$out/goodreads.parquet" "${ids[@]}" --out "$out/killed" >/dev/null 2>&1 & local job=$!
    sleep 60
    kill -9 $job && wait $job || true
    ls -A "$out" | grep killed
    watch prepare "$out/goodreads.parquet" "${ids[@]}" --out "$out/killed" --no-index
    ls -A "$out" | grep killed
    diff <(grep -A4 '^\[files\]' "$out/goodreads/prepare.toml") <(grep -A4 '^\[files\]' "$out/killed/prepare.toml") \
        && echo "the same files as those prepared without a kill"
    rm -rf "$out/killed"
}

# The same log prepared by pandas, scipy and FAISS.
race() {
    watch synth --like movielens-25m --out "$out/race.csv" --force
    for round in 1 2; do
        rm -rf "$out/race"
        watch prepare "$out/race.csv" "${ids[@]}" --preset paper --out "$out/race"
        python3 "$here/watch.py" "$python" "$here/pandas_way.py" "$out/race.csv" "$out/pandas" 2>&1
    done
    "$python" "$here/svd.py" "$out/race"
}

# A CSV of more than 8 GB, in Twitch's format.
csv() {
    mkdir -p "$out/visits"
    "$python" "$here/visits.py" "$out/twitch.parquet" "$out/visits/full_a.csv" 8.2
    rm -rf "$out/visited"
    watch prepare "$out/visits/full_a.csv" --out "$out/visited" --no-index
}

# Rows that are none, in the middle and at the end of that CSV.
damage() {
    set +o pipefail # `head` leaves `tail` in the middle
    local file="$out/visits/full_a.csv" middle good
    middle=$(($(stat -c %s "$file") / 2))
    # The line that begins after the middle, overwritten in place and put back.
    middle=$((middle + $(tail -c +$((middle + 1)) "$file" | head -n 1 | wc -c)))
    good=$(tail -c +$((middle + 1)) "$file" | head -n 1)
    write() { printf '%s' "$1" | dd of="$file" bs=1 seek="$middle" conv=notrunc status=none; }
    for bad in "${good//,/;}" "\"${good:1}"; do
        echo "row: $bad"
        write "$bad"
        watch prepare "$file" --out "$out/damaged" --no-index
    done
    watch prepare "$file" --out "$out/damaged" --no-index --skip-bad-rows 1
    write "$good"
    rm -rf "$out/damaged"
    tail -c 12 "$file" >"$out/tail"
    truncate -s -12 "$file"
    echo "the last row cut: $(tail -n 1 "$file")"
    watch prepare "$file" --out "$out/damaged" --no-index
    cat "$out/tail" - >>"$file" <<<"5000000000,1,streamer_1,1,2"
    echo "a user beyond u32: $(tail -n 1 "$file")"
    watch prepare "$file" --out "$out/damaged" --no-index --min-user-interactions 1 --latent-dim 2
    "$python" - "$out/damaged/contexts.parquet" <<<"
import polars as pl, sys
print(pl.read_parquet(sys.argv[1]).filter(pl.col('user_id') == 5_000_000_000))"
    rm -rf "$out/damaged"
}

# Three minutes of training in each cell. One sample makes a noisier gradient, and takes smaller steps.
train() {
    for name in ${CELLS_OF:-"${names[@]}"}; do
        for samples in ${CELLS:-1 10 100}; do
            rate=1e-3
            [ "$samples" = 1 ] && rate=1e-4
            rm -rf "$out/$name-$samples"
            watch train --data "$out/$name" --out "$out/$name-$samples" --slate-size 5 --config artifacts/former.toml \
                --samples "$samples" --set optimizer.learning_rate=$rate --seconds "${SECONDS_PER_CELL:-180}"
        done
    done
}

for stage in "${stages[@]}"; do
    "$stage" | tee "$out/$stage.log"
done
