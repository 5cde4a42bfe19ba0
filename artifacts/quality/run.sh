#!/usr/bin/env bash
# What the defaults earn on test users, beside other recommenders and beside their own start. FILES holds
# amazon_cds, gowalla, ml-latest-2k, ml-latest-small, amazon_beauty and gowalla_split; a set that is not
# there is left out, and said. SEEDS: the seeds of the splits [default: "0 1 2"]; TUNE: the seconds in
# which each other recommender is tuned [default: 180]; SETS: the sets [default:
# "ml-2k cds gowalla beauty ml-2k-time", and the first three for folds and rewards], any other name of which is
# that of a CSV file in FILES with columns user and item, or that name and -time for a split by its column t; REWARDS: those that are
# trained for [default: "diverse-any-hit cascade reciprocal-rank"]; AGAINST: the other recommenders [default: all]; EARLIER:
# another OUT, for `again`.
# usage: artifacts/quality/run.sh OUT [defaults|against|again|folds|rewards|texts|published|published_half|svd|table]...
source "$(dirname "$0")/../common.sh"
seeds=${SEEDS:-$(pick "0 1 2" 0)}
tune=${TUNE:-$(pick 180 1)}
sets=${SETS:-$(pick "ml-2k cds gowalla beauty ml-2k-time" cds)}
unordered=${SETS:-$(pick "ml-2k cds gowalla" cds)}
rewards=${REWARDS:-diverse-any-hit $(pick "cascade reciprocal-rank" "")}
baselines=${AGAINST:-popularity,svd,als,ease,item-knn}

# Prepares a set with no flag but its columns, unless it is there: SET SEED FLAG...
prepared() {
    local set=$1 seed=$2 log
    shift 2
    [ ! -e "$work/$set-$seed/prepare.toml" ] || return 0
    case $set in
    cds) log=("$files/amazon_cds/interactions.parquet" --user-column user_id --item-column item_id) ;;
    gowalla) log=("$files/gowalla/checkins.parquet" --user-column user_id --item-column location_id) ;;
    ml-2k) log=("$files/ml-latest-2k/ratings.csv" --user-column userId --item-column movieId) ;;
    ml-2k-time)
        log=("$files/ml-latest-2k/ratings.csv" --user-column userId --item-column movieId
            --split temporal --time-column timestamp)
        ;;
    ml-small) log=("$files/ml-latest-small") ;;
    beauty)
        log=("$files/amazon_beauty/sequences.parquet" --user-column user_id --item-column item_id
            --split temporal --time-column t)
        ;;
    *-time) log=("$files/${set%-time}.csv" --user-column user --item-column item --split temporal --time-column t) ;;
    *) log=("$files/$set.csv" --user-column user --item-column item) ;;
    esac
    if [ "$quick" = 1 ]; then
        slate synth --users 500 --actions 1000 --density 0.05 --seed "$seed" --out "$work/log.csv" --force >/dev/null
        log=("$work/log.csv" --user-column user_id --item-column item_id --within 2)
    elif [ ! -e "${log[0]}" ]; then
        echo "left out, not there: ${log[0]}" >&2
        return 1
    fi
    watch "$out/prepare-$set-$seed.jsonl" "$SLATE" prepare "${log[@]}" --seed "$seed" --out "$work/$set-$seed" "$@" \
        | tee "$out/prepare-$set-$seed.txt"
}

# Trains on a prepared set: SET SEED RUN FLAG...
trained() {
    local set=$1 seed=$2 run=$3
    shift 3
    rm -rf "${work:?}/run-$set-$seed-$run"
    watch "$out/train-$set-$seed-$run.jsonl" "$SLATE" train --data "$work/$set-$seed" --out "$work/run-$set-$seed-$run" "$@" \
        2>&1 | tee "$out/train-$set-$seed-$run.txt"
    cp "$work/run-$set-$seed-$run/metrics.jsonl" "$out/train-$set-$seed-$run-metrics.jsonl"
}

# Judges a run on test users: SET SEED RUN NAME FLAG...
judged() {
    local set=$1 seed=$2 run=$3 name=$4
    shift 4
    slate evaluate "$work/run-$set-$seed-$run" "$@" --json >"$out/$name-$set-$seed.json"
}

# Users are asked about several halves of their items, where the split hid items at random: SET
halves() {
    case $1 in
        beauty | *-time) ;;
        *) echo --halves 16 ;;
    esac
}

# Prepare and train with no flags: SET SEED
pipeline() {
    prepared "$1" "$2" || return 0
    trained "$1" "$2" default $(pick "" "--steps 20")
    judged "$1" "$2" default start-to-last --checkpoint last $(halves "$1")
}

defaults() {
    for seed in $seeds; do
        for set in $sets; do pipeline "$set" "$seed"; done
    done
}

# The names of what `defaults` trained, of these sets and seeds.
trained_by_default() {
    for seed in $seeds; do
        for set in $sets; do
            [ ! -e "$work/run-$set-$seed-default" ] || echo "$set-$seed"
        done
    done
}

# The policies of `defaults` beside other recommenders, each tuned.
against() {
    for name in $(trained_by_default); do
        watch "$out/evaluate-$name.jsonl" "$SLATE" evaluate "$work/run-$name-default" --against $baselines --tune "$tune" \
            $(halves "${name%-*}") --json >"$out/against-$name.json"
    done
}

# The same beside the recommenders of an earlier `against`, the results of which are in EARLIER, fitted again with the
# settings that it found.
again() {
    for name in $(trained_by_default); do
        [ -e "$EARLIER/against-$name.json" ] || { echo "left out, not there: $EARLIER/against-$name.json" >&2; continue; }
        local found
        found=$("$python" "$here/found.py" "$EARLIER/against-$name.json")
        slate evaluate "$work/run-$name-default" --against "$found" $(halves "${name%-*}") --json >"$out/against-$name.json"
    done
}

# The reward of the untrained policy on training and on validation users without folds; the runs of
# `defaults` have folds.
folds() {
    for seed in $seeds; do
        for set in $unordered; do
            prepared "$set" "$seed" || continue
            trained "$set" "$seed" folds-0 --steps 1 --set context.folds=0
        done
    done
}

# What training adds under other rewards, by its last checkpoint, on 16 halves of each test user.
rewards() {
    for seed in $seeds; do
        for set in $unordered; do
            prepared "$set" "$seed" || continue
            for reward in $rewards; do
                trained "$set" "$seed" "$reward" --set reward.kind="$reward" --steps "$(pick 1000 20)"
                judged "$set" "$seed" "$reward" "reward-$reward" --checkpoint last --halves 16
            done
        done
    done
}

# Vectors that were not made from what users did: TF-IDF of titles and genres, shortened by an SVD.
texts() {
    for seed in $seeds; do
        [ -e "$files/ml-latest-small" ] || { echo "left out, not there: $files/ml-latest-small" >&2; return 0; }
        (cd "$work" && "$python" "$root/examples/import_embeddings/texts.py" "$files/ml-latest-small/movies.csv")
        slate prepare "$files/ml-latest-small" --seed "$seed" --embeddings "$work/beta.npy" --embedding-ids "$work/ids.txt" \
            --out "$work/texts-$seed" --force >"$out/prepare-texts-$seed.txt"
        trained texts "$seed" texts
        judged texts "$seed" texts texts --checkpoint last --against "$baselines"
    done
}

# The split that LightGCN's benchmark publishes: recall and nDCG at 20. Everything is chosen on what
# training users hide of their training items. EASE, whose number is published (.1765 and .1467), checks the
# protocol; it takes two minutes.
published() {
    [ -e "$files/gowalla_split/train.parquet" ] || { echo "left out, not there: $files/gowalla_split" >&2; return 0; }
    local columns=(--train "$files/gowalla_split/train.parquet" --test "$files/gowalla_split/test.parquet"
        --user-column user --item-column item --validation-share 0 --within 600)
    rm -rf "$work/published" "$work/run-published"
    watch "$out/published.jsonl" "$SLATE" prepare "${columns[@]}" --reward dcg --slate-size 20 --out "$work/published" \
        | tee "$out/published-prepare.txt"
    watch "$out/published.jsonl" "$SLATE" train --data "$work/published" --out "$work/run-published" 2>&1 | tee "$out/published-train.txt"
    watch "$out/published-evaluate.jsonl" "$SLATE" evaluate "$work/run-published" --against popularity,ease:ridge=100 \
        --metrics recall@20,ndcg@20 --json >"$out/published.json"
}

# The same split with vectors that its test items prefer: no result, but what the league misses there.
published_half() {
    [ -e "$files/gowalla_split/train.parquet" ] || { echo "left out, not there: $files/gowalla_split" >&2; return 0; }
    rm -rf "$work/half" "$work/run-half"
    slate prepare --train "$files/gowalla_split/train.parquet" --test "$files/gowalla_split/test.parquet" --user-column user \
        --item-column item --validation-share 0 --embeddings svd --latent-dim 2048 --normalization 0.5 --out "$work/half"
    slate train --data "$work/half" --out "$work/run-half" --slate-size 20 --steps 1 --set reward.kind=dcg \
        --set embedding.power=0.75 --set embedding.popularity=0.5 --set context.popularity_power=1 --set context.folds=0
    slate evaluate "$work/run-half" --checkpoint 0 --metrics recall@20,ndcg@20 --json >"$out/published-half.json"
}

# Seconds of a long decomposition.
svd() {
    for length in 100 512 1024; do
        rm -rf "$work/svd"
        prepare_gowalla "$work/svd" --latent-dim $length --json >"$out/svd-$length.json"
    done
}

table() { python3 "$here/table.py" "$out" | tee "$out/table.md"; }

run_stages "$(pick "defaults against folds rewards texts published svd table" "defaults against folds rewards table")" "$@"
find "$out" -name '*.txt' -o -name '*.json' -o -name '*.jsonl' | xargs -r sed -i "s|$work/||g; s|$files/||g"
