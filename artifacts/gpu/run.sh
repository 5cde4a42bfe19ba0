#!/usr/bin/env bash
# Exact search and a training step on a GPU, beside PyTorch on the same card.
# usage: artifacts/gpu/run.sh OUT [STAGE]...   (all unless told, in this order)
#   devices    what there is to compute on; fails without a discrete GPU
#   search     searches at L = 100 in every manner; the first slates are compared with the host's
#   kernels    what each kernel takes in some of these searches, by the runtime's own log
#   step       whole training steps on synthetic logs, LGP with exact search; WORK needs 12 GB
#   peer       the searches by PyTorch, f32, TF32 and f16: PYTHON has torch
#   peer_step  the steps by PyTorch
#   long       searches at L = 512 and 1 024; 20 GB of memory
#   peer_long  the same by PyTorch
#   table      what the others wrote; on any machine, python3 artifacts/gpu/table.py OUT
# Data come from seeds and nothing from a network. SLATE is a release build with the feature vulkan, DEVICE the
# device [default: wgpu], ACTIONS the sizes of the catalogue, if not all three. On a machine without a compiler,
# packed.tar.gz of pack.sh in this folder (or PACKED) brings what is missing.
# What is wanted most comes first. A row is appended as soon as it is measured, and the table takes the last of its
# kind: stages may be run one by one and again. What fails is noted, the next goes on, and the script fails in the end.
FEATURES=flex,vulkan
keep_going=1
packed=${PACKED:-$(dirname "$0")/packed.tar.gz}
if [ -z "${SLATE:-}" ] && [ -e "$packed" ]; then
    unpacked=${TMPDIR:-/tmp}/slate-gpu
    mkdir -p "$unpacked" && tar -xzf "$packed" -C "$unpacked" || exit 1
    export SLATE=$unpacked/slate
    export LD_LIBRARY_PATH=$unpacked/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    # Where the loader looks by itself, then where containers get NVIDIA's driver, then our own.
    known=$(ls {/etc,/usr/share,/usr/local/share}/vulkan/icd.d/nvidia*.json 2>/dev/null)
    if [ -z "${VK_DRIVER_FILES:-}$known" ]; then
        for description in /usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json "$unpacked/nvidia_icd.json"; do
            [ ! -e "$description" ] || break
        done
        export VK_DRIVER_FILES=$description
    fi
fi
source "$(dirname "$0")/../common.sh"
device=${DEVICE:-wgpu}
repetitions=$(pick 20 1)
read -ra sizes <<<"${ACTIONS:-$(pick "2230000 750000 55000" "9000")}"
failures=$work/failures
rm -f "$failures"

# Runs a command for so many seconds at most; what fails is noted: attempt SECONDS COMMAND...
attempt() {
    local limit=$1 status=0
    shift
    timeout -k 10 "$limit" "$@" || status=$?
    [ "$status" = 0 ] || echo "$status: $*" | tee -a "$failures" >&2
}

# Appends the JSON that a command prints to a table, with some fields before it: row TABLE SECONDS FIELDS COMMAND...
row() {
    local table=$1 limit=$2 fields=$3
    shift 3
    attempt "$limit" "$@" >"$work/row.json"
    [ ! -s "$work/row.json" ] || attempt 10 python3 - "$fields" "$work/row.json" "$out/$table.jsonl" <<'PYTHON'
import json, sys
row = {**json.loads(sys.argv[1]), **json.load(open(sys.argv[2]))}
print(json.dumps(row), file=open(sys.argv[3], "a"))
PYTHON
}

devices() {
    SLATE_LOG=fast_slate=debug slate info devices --json >"$out/devices.json"
    cat "$out/devices.json"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
    [ "$quick" = 1 ] || python3 - "$out/devices.json" <<'PYTHON'
import json, sys
found = [row["found"] for row in json.load(open(sys.argv[1]))["devices"] if row["name"] == "wgpu"]
sys.exit(None if found and (found[0] or "").endswith(" (GPU)") else f"wgpu has no discrete GPU, but {found}")
PYTHON
}

# Searches at one length of vectors: searches L SECONDS "QUERIES"
searches() {
    local dim=$1 limit=$2 actions manner
    for actions in "${sizes[@]}"; do
        for manner in $(pick "half sweep" sweep); do
            row search "$limit" '{}' "$SLATE" bench search --device "$device" --actions "$actions" --latent-dim "$dim" \
                --queries "$3" --slate-size "$(pick 5,100 5)" --excluded 20 --manner "$manner" \
                --repetitions "$repetitions" --product "$(pick 8192 256)" --json
        done
    done
}

search() { searches 100 90 "$(pick 3200,320,32 32)"; }

kernels() {
    local queries sizes_of actions manner log=$work/kernels.log command
    queries=$(pick 3200,32 32) sizes_of=$(pick 5,100 5) command=$(realpath "$(command -v "$SLATE")")
    printf '[profiling]\nlogger = { level = "basic", file = "%s" }\n' "$log" >"$work/cubecl.toml"
    for actions in "${sizes[@]}"; do
        for manner in $(pick "half sweep" sweep); do
            rm -f "$log"
            # The runtime looks for its settings in the folder that it is started in.
            (cd "$work" && attempt 60 "$command" bench search --device "$device" --actions "$actions" --queries "$queries" \
                --slate-size "$sizes_of" --excluded 20 --manner "$manner" --repetitions 1 --product 256 --json >/dev/null)
            attempt 20 python3 "$here/kernels.py" "$log" "$actions" "$manner" "$queries" "$sizes_of" >>"$out/kernels.jsonl"
        done
    done
}

long() {
    for dim in $(pick "512 1024" "128"); do searches "$dim" 120 "$(pick 3200,32 32)"; done
}

# The numbers of samples at one size of the catalogue.
samples_of() { if [ "$1" = 750000 ]; then echo 100 1; else pick "100 10 1" 2; fi; }

# Prepares a synthetic log, unless it is there: prepare FOLDER ACTIONS
prepare() {
    local log=(--user-column user_id --item-column item_id)
    [ ! -e "$1/prepare.toml" ] || return 0
    attempt 200 "$SLATE" synth --users "$(pick 40000 500)" --actions "$2" --out "$1.parquet" --force \
        --density "$(python3 -c "print($(pick 100 30) / $2)")" --ceiling-users 10 >/dev/null
    attempt 300 "$SLATE" prepare "$1.parquet" "${log[@]}" --out "$1" --latent-dim "$(pick 100 16)" --no-index
    rm -f "$1.parquet"
    [ -e "$1/prepare.toml" ]
}

step() {
    local actions samples size manner flag
    for actions in "${sizes[@]}"; do
        prepare "$work/step-$actions" "$actions" || continue
        for samples in $(samples_of "$actions"); do
            for size in $(pick "5 100" "5"); do
                # The faster manner says what it was chosen by; f32 is measured whatever is faster.
                for manner in fastest $(if [ "$samples" = 100 ]; then echo sweep; fi); do
                    flag=()
                    [ "$manner" = fastest ] || flag=(--manner "$manner")
                    # Every sample is searched for; folds would search smaller batches in vectors of their own.
                    row step 60 "{\"actions\": $actions, \"samples\": $samples, \"slate_size\": $size, \"device\": \"$device\"}" \
                        "$SLATE" bench step "$work/step-$actions" --device "$device" --json --preset paper --method lgp \
                        --samples "$samples" --slate-size "$size" --set method.candidates=0 \
                        --set retrieval.exclude_observed=true --steps "$(pick 40 2)" "${flag[@]}"
                done
            done
        done
    done
}

# Runs peer.py at each size of the catalogue if PYTHON has torch and a card; otherwise says what is left out:
# by_torch SECONDS ARGUMENT...
by_torch() {
    local limit=$1 actions
    shift
    if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
        echo "LEFT OUT: peer.py $1 needs torch with CUDA in PYTHON ($python)"
        return 0
    fi
    for actions in "${sizes[@]}"; do
        attempt "$limit" "$python" "$here/peer.py" "$@" --actions "$actions" --samples "$(samples_of "$actions")" \
            --repetitions "$repetitions"
    done
}

peer() { by_torch 200 search "$out/peer.jsonl" --latent-dim 100; }

peer_step() { by_torch 150 step "$out/peer_step.jsonl" --latent-dim 100; }

peer_long() { by_torch 300 search "$out/peer.jsonl" --latent-dim "512 1024" --queries "3200 32"; }

table() {
    python3 "$here/table.py" "$out" | tee "$out/gpu.md"
}

run_stages "devices search kernels step peer peer_step long peer_long table" "$@" 2>&1 | tee -a "$out/log.txt"
if [ -s "$failures" ]; then
    printf '\nwhat failed, behind its exit code:\n%s\n' "$(cat "$failures")" | tee -a "$out/log.txt" >&2
    exit 1
fi
