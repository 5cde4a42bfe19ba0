#!/usr/bin/env bash
# Drives the page of `slate serve` in headless Chromium. See README.md beside this file.
# usage: tests/browser/run.sh BUNDLE|URL|fetch      (fetch: only fetches selenium and axe-core)
set -euo pipefail
here=$(dirname "$(realpath "$0")")
[ $# -eq 1 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
for tool in chromium chromedriver; do
    command -v $tool >/dev/null || { echo "$tool is missing: apt-get install chromium chromium-driver" >&2; exit 2; }
done
tools=${BROWSER_TOOLS:-${TMPDIR:-/tmp}/slate-browser-tools}
if [ ! -x "$tools/venv/bin/python" ] || ! "$tools/venv/bin/python" -c 'import selenium' 2>/dev/null; then
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install --quiet 'selenium>=4.20,<5'
fi
if [ -z "${AXE:-}" ]; then
    AXE=$tools/package/axe.min.js
    if [ ! -f "$AXE" ]; then
        archive=$(cd "$tools" && npm pack --silent axe-core@4)
        tar -xzf "$tools/$archive" -C "$tools" package/axe.min.js
    fi
fi
[ "$1" != fetch ] || exit 0
export AXE SLATE=${SLATE:-$here/../../target/release/slate} SE_OFFLINE=true PYTHONDONTWRITEBYTECODE=1
exec "$tools/venv/bin/python" "$here/drive.py" "$1"
