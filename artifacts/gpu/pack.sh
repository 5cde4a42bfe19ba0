#!/usr/bin/env bash
# Makes artifacts/gpu/packed.tar.gz: what run.sh needs on a machine with a GPU and without a compiler or a network.
# usage: artifacts/gpu/pack.sh [DEB]...
#   DEB    Debian packages of libraries that the machine lacks, such as Vulkan's loader: apt-get download libvulkan1
#   SLATE  the command to pack [default: a release build of this checkout, made first]
# The machine needs the same processor, a C library no older than here, and NVIDIA's driver.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
if [ -z "${SLATE:-}" ]; then
    cargo build --release --manifest-path "$root/Cargo.toml" --features flex,vulkan
    SLATE=${CARGO_TARGET_DIR:-$root/target}/release/slate
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/deb" "$folder/packed" "$folder/packed/lib"
strip -o "$folder/packed/slate" "$SLATE"
for package in "$@"; do dpkg-deb -x "$package" "$folder/deb"; done
find "$folder/deb" -name '*.so*' -exec cp -a {} "$folder/packed/lib/" \;
# What the driver's own description says, for a machine whose driver came without it.
cat >"$folder/packed/nvidia_icd.json" <<'JSON'
{"file_format_version": "1.0.1", "ICD": {"library_path": "libGLX_nvidia.so.0", "api_version": "1.3.277"}}
JSON
tar -C "$folder/packed" -I 'gzip -9' -cf "$root/artifacts/gpu/packed.tar.gz" .
ls -l "$root/artifacts/gpu/packed.tar.gz"
