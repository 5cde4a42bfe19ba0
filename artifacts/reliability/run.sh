#!/usr/bin/env bash
# What is left when things go wrong: kills, failing system calls, a server under abuse and for long. PYTHON has pyarrow for
# kills and soak, and cyclonedx-python-lib for supply, which needs cargo-deny; `faults` needs strace, and for some of its
# rows a C compiler and the right to mount.
# usage: artifacts/reliability/run.sh OUT [kills|faults|abuse|soak|fuzz|supply|table]...
#   kills   1 000 kills by −9 at random moments of every verb that writes, and of a server with a log
#   faults  every n-th write, every 20th read and every lock of each verb fails; full disks, signals, two at once
#   abuse   twelve things that visitors do
#   soak    an hour at half load: memory and descriptors
#   fuzz    every reader a million times, or for half an hour; TARGETS names some. Needs Rust's nightly and cargo-fuzz
#   supply  licences and sources of all crates, and the list of them
source "$(dirname "$0")/../common.sh"

# shellcheck disable=SC2046 # some names, or none
kills() { "$python" "$here/kills.py" "$SLATE" "$work/kills" "$(pick 1000 18)" $(pick "" "train export recommend") | tee "$out/kills.jsonl"; }
# shellcheck disable=SC2046
faults() {
    if [ "$quick" = 1 ] && ! command -v strace >/dev/null; then
        echo "LEFT OUT: strace is not here" >&2
        return
    fi
    "$python" "$here/faults.py" "$SLATE" "$work/faults" 1 "$(pick 20 200)" $(pick "" recommend) | tee "$out/faults.jsonl"
}
abuse() { "$python" "$here/abuse.py" "$SLATE" "$work/abuse" "$(pick 1 0.01)" | tee "$out/abuse.jsonl"; }
soak() {
    slate synth --users 600 --actions 800 --density 0.03 --out "$work/soak.csv" --force >/dev/null
    rm -rf "$work/soak-data" "$work/soak-run" "$work/soak-bundle"
    slate prepare "$work/soak.csv" --user-column user_id --item-column item_id --embeddings svd \
        --latent-dim 16 --out "$work/soak-data" >/dev/null
    slate train --data "$work/soak-data" --out "$work/soak-run" --steps 20 >/dev/null
    slate export "$work/soak-run" --out "$work/soak-bundle" --histories --index >/dev/null
    "$python" "$here/soak.py" "$SLATE" "$work/soak-bundle" "$(pick 3600 4)" "$out/soak.svg" | tee "$out/soak.jsonl"
}

fuzz() {
    # shellcheck disable=SC2086 # some names
    "$python" "$here/fuzz.py" "$SLATE" "$work/fuzz" "$(pick 1000000 1000)" "$(pick 1800 5)" ${TARGETS:-} | tee "$out/fuzz.jsonl"
}

supply() {
    cd "$root"
    cargo deny --log-level error check licenses bans sources 2>&1 | tee "$out/deny.txt"
    "$python" "$here/sbom.py" "$work/fast-slate.cdx.json" serve,flex,wgpu | tee "$out/sbom.txt"
}

table() { python3 "$here/table.py" "$out" | tee "$out/table.md"; }

run_stages "$(pick "kills faults abuse soak fuzz supply table" "kills faults abuse table")" "$@"
