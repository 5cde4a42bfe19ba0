# Sourced by every run.sh, which is called as `artifacts/NAME/run.sh OUT [STAGE...]`.
#   OUT      where tables and raw results (JSON) go
# The environment:
#   SLATE    the command to measure [default: a release build of this checkout, made first]
#   FILES    the folder of the logs, such as gowalla/checkins.parquet [default: $FAST_SLATE_DATA, or data]
#   WORK     where prepared folders and runs go, and are found again [default: a temporary folder]
#   PYTHON   a Python with the packages that a stage names; the tables need none [default: python3]
#   QUICK=1  small made-up data and short budgets: shows that a script runs; its numbers say nothing
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -eq 0 ]; then
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
export NODEVICE_SELECT=1
quick=${QUICK:-0}
files=${FILES:-${FAST_SLATE_DATA:-$root/data}}
python=${PYTHON:-python3}
if [ -n "${WORK:-}" ]; then
    mkdir -p "$WORK"
    work=$(cd "$WORK" && pwd)
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
if [ -z "${SLATE:-}" ]; then # built before: nothing may compile while something is measured
    cargo build --quiet --release --manifest-path "$root/Cargo.toml" ${FEATURES:+--features "$FEATURES"}
    SLATE=${CARGO_TARGET_DIR:-$root/target}/release/slate
fi

slate() { "$SLATE" "$@"; }

# The first of two words, or with QUICK the second.
pick() { if [ "$quick" = 1 ]; then echo "$2"; else echo "$1"; fi; }

# Runs a command, and appends its seconds and its peak memory to a file: watch FILE COMMAND...
watch() { python3 "$root/artifacts/watch.py" "$@"; }

# Prepares Gowalla's check-ins of users with 20 places or more, as the paper has them, or with QUICK a small
# made-up log, unless it is there: FOLDER FLAG...
prepare_gowalla() {
    local folder=$1 log=("$files/gowalla/checkins.parquet" --user-column user_id --item-column location_id)
    shift
    [ ! -e "$folder/prepare.toml" ] || return 0
    if [ "$quick" = 1 ]; then
        slate synth --users 1000 --actions 2000 --density 0.02 --out "$work/log.csv" --force >/dev/null
        log=("$work/log.csv" --user-column user_id --item-column item_id)
    fi
    slate prepare "${log[@]}" --min-user-interactions 20 --out "$folder" "$@"
}

# Runs the stages that are named, or those of the first argument: run_stages "STAGE..." NAMED... A stage that fails
# ends the script; with keep_going=1 it is written to the file $failures, and the next goes on.
run_stages() {
    local stages stage
    read -ra stages <<<"$1"
    shift
    [ $# -eq 0 ] || stages=("$@")
    for stage in "${stages[@]}"; do
        echo "== $stage"
        if [ "${keep_going:-0}" = 0 ]; then
            "$stage"
            continue
        fi
        local since=$SECONDS status
        set +e
        (set -e; "$stage")
        status=$?
        set -e
        [ "$status" = 0 ] || echo "$status: $stage" | tee -a "$failures" >&2
        echo "== $stage took $((SECONDS - since)) s"
    done
}
