#!/usr/bin/env bash
# Exact search and a training step on a GPU, beside PyTorch on the same card.
# usage: artifacts/gpu/run.sh OUT [devices|search|long|step|peer|peer_step|table]...   (all unless told)
#   devices    what there is to compute on
#   search     searches at L = 100; every first search is compared with the host's
#   long       the same at L = 512 and 1 024
#   step       whole training steps on synthetic logs, LGP with exact search; WORK needs 12 GB
#   peer       the searches by PyTorch, f32 without TF32 and f16: PYTHON has torch
#   peer_step  the steps by PyTorch
#   table      what the others wrote
# Data come from seeds and nothing from a network. SLATE is a release build with the feature wgpu, DEVICE the
# device [default: wgpu], ACTIONS the sizes of the catalogue, if not all three. A row is written as soon as it is
# measured.
FEATURES=flex,wgpu
source "$(dirname "$0")/../common.sh"
device=${DEVICE:-wgpu}
repetitions=$(pick 20 1)
read -ra sizes <<<"${ACTIONS:-$(pick "55000 750000 2230000" "9000")}"
kinds=(--slate-size "$(pick 5,100 5)" --excluded 20)

devices() {
    slate info devices --json | tee "$out/devices.json"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$out/card.txt" 2>/dev/null || true
}

# Searches at one length of vectors: FILE L P...
searches() {
    local file=$1 dim=$2 actions
    shift 2
    for actions in "$@"; do
        slate bench search --device "$device" --actions "$actions" --latent-dim "$dim" --queries "$(pick 32,320,3200 32)" \
            "${kinds[@]}" --repetitions "$repetitions" --product "$(pick 8192 256)" --json >"$work/search.json"
        python3 -c "import json; print(json.dumps(json.load(open('$work/search.json'))))" >>"$file"
    done
}

search() {
    rm -f "$out/search.jsonl"
    searches "$out/search.jsonl" 100 "${sizes[@]}"
}

long() {
    rm -f "$out/long.jsonl"
    for dim in $(pick "512 1024" "128"); do searches "$out/long.jsonl" "$dim" "${sizes[@]}"; done
}

step() {
    rm -f "$out/step.jsonl"
    for actions in "${sizes[@]}"; do
        data=$work/step-$actions
        if [ ! -e "$data/prepare.toml" ]; then
            slate synth --users "$(pick 40000 500)" --actions "$actions" --out "$data.parquet" --force \
                --density "$(python3 -c "print($(pick 100 30) / $actions)")" --ceiling-users 10 >/dev/null
            slate prepare "$data.parquet" --user-column user_id --item-column item_id --out "$data" --latent-dim "$(pick 100 16)" --no-index
            rm "$data.parquet"
        fi
        for samples in $(pick "1 10 100" "2"); do
            for size in $(pick "5 100" "5"); do
                # Every sample is searched for; folds would search smaller batches in vectors of their own.
                slate bench step "$data" --device "$device" --json --preset paper --method lgp --samples "$samples" \
                    --slate-size "$size" --set method.candidates=0 --set retrieval.exclude_observed=true \
                    --steps "$(pick 40 2)" >"$work/step.json"
                python3 -c "import json
print(json.dumps({'actions': $actions, 'samples': $samples, 'slate_size': $size, 'device': '$device', **json.load(open('$work/step.json'))}))" >>"$out/step.jsonl"
            done
        done
    done
}

# True if PYTHON has torch and a card; otherwise says what is left out.
has_torch() {
    "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null && return
    echo "LEFT OUT: $1 needs torch with CUDA in PYTHON ($python)"
    return 1
}

peer() {
    has_torch peer || return 0
    rm -f "$out/peer.jsonl"
    for dim in 100 512 1024; do
        for actions in "${sizes[@]}"; do
            for flags in "--dtype f32" "--dtype f32 --tf32" "--dtype f16"; do
                # shellcheck disable=SC2086
                "$python" "$here/peer.py" search "$out/peer.jsonl" --actions "$actions" --latent-dim "$dim" $flags --repetitions "$repetitions"
            done
        done
    done
}

peer_step() {
    has_torch peer_step || return 0
    rm -f "$out/peer_step.jsonl"
    for actions in "${sizes[@]}"; do
        for flags in "--dtype f32" "--dtype f32 --tf32" "--dtype f16"; do
            # shellcheck disable=SC2086
            "$python" "$here/peer.py" step "$out/peer_step.jsonl" --actions "$actions" $flags --repetitions "$repetitions"
        done
    done
}

table() {
    python3 "$here/table.py" "$out" | tee "$out/gpu.md"
}

run_stages "devices search long step peer peer_step table" "$@"
