#!/usr/bin/env bash
# Preparation and steps at the size of the paper's data sets. WORK needs 30 GB, for csv 10 GB more.
# usage: artifacts/scale/run.sh OUT [shapes|killed|csv|damage|steps|race]...      (all but race unless told)
#   shapes  logs of the three shapes, prepared with an index: time and memory
#   league  the same logs with no flag but the columns: vectors, time and memory
#   killed  a preparation that is killed, and made again: the same files, some of them reused
#   csv     a CSV of 8.3 GB in Twitch's format
#   damage  the same with rows that are none
#   steps   a training step of the default preset on the three shapes
#   race    the first shape by pandas, scipy and FAISS: PYTHON has numpy scipy polars safetensors pandas faiss-cpu
source "$(dirname "$0")/../common.sh"
read -ra names <<<"$(pick "movielens-25m twitch goodreads" "small")"
ids=(--user-column user_id --item-column item_id)

# The log of a shape, made up unless it is there: NAME
log() {
    local shape=(--like "$1")
    [ "$1" != small ] || shape=(--users 2000 --actions 4000 --density 0.01)
    [ -e "$work/$1.parquet" ] || slate synth "${shape[@]}" --out "$work/$1.parquet" --ceiling-users 10 >/dev/null
}

shapes() {
    rm -f "$out/shapes.jsonl" "$out"/shape-*.json
    for name in "${names[@]}"; do
        log "$name"
        rm -rf "${work:?}/$name"
        watch "$out/shapes.jsonl" "$SLATE" prepare "$work/$name.parquet" "${ids[@]}" --out "$work/$name" --latent-dim 100 --json >"$out/shape-$name.json"
    done
    sed -i "s|$work/||g" "$out"/shapes.jsonl "$out"/shape-*.json
    python3 - "$out" "${names[@]}" <<'PYTHON' | tee "$out/shapes.md"
import json, sys
out, names = sys.argv[1], sys.argv[2:]
print("| shape | users × actions | interactions | read, split | vectors | index | whole | memory |\n|---|---|---|---|---|---|---|---|")
for name, watched in zip(names, map(json.loads, open(f"{out}/shapes.jsonl"))):
    report = json.load(open(f"{out}/shape-{name}.json"))
    found, phases = report["statistics"], report["phases"]
    print(f"| {name} | {found['users']:,} × {found['actions']:,} | {found['interactions']:,} | {phases['sessions']:.1f} s | "
          f"{phases['embeddings']:.1f} s | {phases['index'] or 0:.1f} s | {watched['seconds']:.1f} s | {watched['anonymous_gib']:.2f} GiB |")
PYTHON
}

league() {
    rm -f "$out/league.jsonl" "$out"/league-*.json
    for name in "${names[@]}"; do
        log "$name"
        rm -rf "${work:?}/$name-league"
        watch "$out/league.jsonl" "$SLATE" prepare "$work/$name.parquet" "${ids[@]}" --out "$work/$name-league" $([ "$quick" = 0 ] || echo --within 2) \
            --json >"$out/league-$name.json"
        rm -rf "${work:?}/$name-league"
    done
    sed -i "s|$work/||g" "$out"/league.jsonl "$out"/league-*.json
    python3 - "$out" "${names[@]}" <<'PYTHON' | tee "$out/league.md"
import json, sys
out, names = sys.argv[1], sys.argv[2:]
print("| shape | vectors that were chosen | candidates | whole | memory |\n|---|---|---|---|---|")
for name, watched in zip(names, map(json.loads, open(f"{out}/league.jsonl"))):
    league = json.load(open(f"{out}/league-{name}.json"))["league"]
    chosen = next(row["candidate"] for row in league["table"] if row["chosen"])
    print(f"| {name} | {chosen['kind']} of {chosen['latent_dim']} | {league['tried']} | "
          f"{watched['seconds']:.0f} s | {watched['anonymous_gib']:.2f} GiB |")
PYTHON
}

killed() {
    local name=${names[-1]} job
    log "$name"
    rm -rf "$work/whole" "$work/killed"
    slate prepare "$work/$name.parquet" "${ids[@]}" --out "$work/whole" --latent-dim 100 --no-index >/dev/null
    "$SLATE" prepare "$work/$name.parquet" "${ids[@]}" --out "$work/killed" --latent-dim 100 --no-index >/dev/null 2>&1 &
    job=$!
    # The kill falls into the vectors, once the sessions are done: how long that takes is not the same everywhere.
    sleep "$(pick 40 0.5)"
    kill -9 $job 2>/dev/null || true
    wait $job 2>/dev/null || true
    rm -f "$out/killed.jsonl"
    # In QUICK mode it may have ended before the kill.
    [ ! -e "$work/killed/prepare.toml" ] || rm -rf "$work/killed"
    watch "$out/killed.jsonl" "$SLATE" prepare "$work/$name.parquet" "${ids[@]}" --out "$work/killed" --latent-dim 100 --no-index | tee "$out/killed.txt"
    for file in interactions.parquet contexts.parquet actions.parquet embeddings.safetensors; do
        cmp "$work/whole/$file" "$work/killed/$file"
    done
    echo "the same files as those of a preparation that was not killed" | tee -a "$out/killed.txt"
    [ -z "$(find "$work" -maxdepth 1 -name '.*partial*')" ]
    sed -i "s|$work/||g" "$out"/killed.*
}

# Twitch's format, `user,stream,streamer,start,stop` without a header; every pair as often as it takes.
visits() {
    local csv=$work/visits/full_a.csv name=${names[0]}
    [ "$quick" = 1 ] || name=twitch
    [ ! -e "$csv" ] || return 0
    log "$name"
    mkdir -p "$work/visits"
    slate synth $([ "$quick" = 1 ] && echo --users 2000 --actions 4000 --density 0.01 || echo --like twitch) \
        --out "$work/visits.csv" --force --ceiling-users 10 >/dev/null
    while [ "$(stat -c %s "$csv" 2>/dev/null || echo 0)" -lt "$(pick 8200000000 8000000)" ]; do
        awk -F, -v OFS=, 'NR > 1 { print $1, 33000000000 + NR, "streamer_" $2, NR % 6100, NR % 6100 + 7 }' "$work/visits.csv" >>"$csv"
    done
    rm "$work/visits.csv"
}

csv() {
    visits
    rm -rf "$work/visited" "$out/csv.jsonl"
    ls -l "$work/visits/full_a.csv" | awk '{ print $5 " bytes" }' | tee "$out/csv.txt"
    watch "$out/csv.jsonl" "$SLATE" prepare "$work/visits/full_a.csv" --out "$work/visited" --latent-dim 100 --no-index | tee -a "$out/csv.txt"
    sed -i "s|$work/||g" "$out"/csv.*
}

# Each damage, what is said of it, and the memory it took.
damage() {
    local file=$work/visits/full_a.csv middle good
    visits
    rm -f "$out/damage.jsonl" "$out/damage.txt"
    damaged() {
        echo "$1" | tee -a "$out/damage.txt"
        shift
        rm -rf "$work/damaged"
        { watch "$out/damage.jsonl" "$SLATE" prepare "$file" --out "$work/damaged" --latent-dim 100 --no-index "$@" 2>&1 || true; } | tail -n 3 | tee -a "$out/damage.txt"
    }
    # The line that begins after the middle, overwritten in place and put back.
    middle=$(($(stat -c %s "$file") / 2))
    middle=$((middle + $(dd if="$file" bs=4096 iflag=skip_bytes skip=$middle count=1 status=none | head -n 1 | wc -c)))
    good=$(dd if="$file" bs=4096 iflag=skip_bytes skip=$middle count=1 status=none | sed -n 1p)
    write() { printf '%s' "$1" | dd of="$file" bs=64 oflag=seek_bytes seek=$middle conv=notrunc status=none; }
    write "${good//,/;}"
    damaged "a row with ; for ,"
    write "\"${good:1}"
    damaged "a quote left open"
    damaged "the same, with --skip-bad-rows 1" --skip-bad-rows 1
    write "$good"
    tail -c 12 "$file" >"$work/tail"
    truncate -s -12 "$file"
    damaged "the last row cut"
    cat "$work/tail" >>"$file"
    sed -i "s|$work/||g" "$out"/damage.*
}

steps() {
    rm -f "$out/steps.jsonl"
    for name in "${names[@]}"; do
        log "$name"
        [ -e "$work/$name/prepare.toml" ] || slate prepare "$work/$name.parquet" "${ids[@]}" --out "$work/$name" --latent-dim 100 >/dev/null
        for samples in $(pick "1 10 100" "1 10"); do
            watch "$work/memory.jsonl" "$SLATE" bench step "$work/$name" --samples "$samples" --slate-size 5 --steps "$(pick 300 5)" --json >"$work/step.json"
            python3 -c "import json
memory = json.loads(open('$work/memory.jsonl').readlines()[-1])
print(json.dumps({'shape': '$name', 'samples': $samples, **json.load(open('$work/step.json')), **memory}))" >>"$out/steps.jsonl"
        done
    done
    sed -i "s|$work/||g" "$out/steps.jsonl"
    python3 - "$out" <<'PYTHON' | tee "$out/steps.md"
import json, sys
print("| shape | S | steps/s | coverage | memory |\n|---|---|---|---|---|")
for row in map(json.loads, open(f"{sys.argv[1]}/steps.jsonl")):
    audit = row.get("candidates")
    coverage = f"{audit['recall']:.3f}{'' if audit['used'] else ', not used'}" if audit else ""
    print(f"| {row['shape']} | {row['samples']} | {row['steps_per_second']:.3g} | {coverage} | {row['anonymous_gib']:.2f} GiB |")
PYTHON
}

race() {
    local csv=$work/race.csv round
    [ -e "$csv" ] || slate synth $([ "$quick" = 1 ] && echo --users 2000 --actions 4000 --density 0.01 || echo --like movielens-25m) \
        --out "$csv" --ceiling-users 10 >/dev/null
    rm -f "$out/race.jsonl"
    for round in 1 2; do
        rm -rf "$work/race"
        watch "$out/race.jsonl" "$SLATE" prepare "$csv" "${ids[@]}" --preset paper --out "$work/race"
        watch "$out/race.jsonl" "$python" "$here/pandas_way.py" "$csv" "$work/pandas"
    done | tee "$out/race.txt"
    "$python" "$here/svd.py" "$work/race" | tee -a "$out/race.txt"
    sed -i "s|$work/||g" "$out"/race.*
}

run_stages "shapes league killed csv damage steps" "$@"
