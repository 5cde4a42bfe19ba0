"""Fuzzes every reader: fuzz.py SLATE WORK EXECUTIONS SECONDS [TARGET...]

EXECUTIONS for each reader of ours, SECONDS for each that ends in a dependency. Each begins with real files, and goes on from
what reached most before: of fuzz/corpus, which gets the fewest files that reach as much, and of WORK, which keeps all. A line
of JSON for each: executions, seconds, coverage (edges that were reached), and what was found. Needs Rust's nightly and
cargo-fuzz.
"""

import gzip
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

slate, work, executions, seconds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
ROOT = Path(__file__).resolve().parents[2]
OURS = ["settings", "grid", "npy", "safetensors", "checkpoint", "bundle", "http", "log"]
# Bytes of each corpus in the repository: the shortest files.
KEPT = 1 << 17
DEPENDENCIES = ["csv", "gzip", "zip", "parquet", "index"]
made = work / "made"
COLUMNS = ["--user-column", "user_id", "--item-column", "item_id"]


def ran(*words: object) -> None:
    subprocess.run([slate, *map(str, words)], check=True, capture_output=True)


def make() -> None:
    made.mkdir(parents=True)
    for name in ("log.csv", "log.parquet"):
        ran("synth", "--users", 80, "--actions", 120, "--density", 0.18, "--out", made / name)
    small = [*COLUMNS, "--min-user-interactions", 5, "--embeddings", "svd", "--latent-dim", 8]
    ran("prepare", made / "log.csv", *small, "--no-index", "--out", made / "data")
    # θ is 8 by 8, as the target expects.
    train = ["--set", "slate_size=5", "--set", "context.folds=0", "--method", "lgp"]
    ran("train", "--data", made / "data", "--out", made / "run", "--steps", 2, *train)
    ran("export", made / "run", "--out", made / "bundle", "--histories", "--index")
    ran("export", made / "run", "--out", made / "bundle-exact", "--histories", "--index=false")
    served()


def served() -> None:
    """A log of a few answers and what came of them, its segment not finished."""
    command = [slate, "serve", made / "bundle", "--listen", "127.0.0.1:0", "--log", made / "log"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        address = next(line for line in process.stderr if " on http://" in line).split("//")[1].split()[0].strip("/")

        def post(path: str, body: dict) -> dict:
            request = urllib.request.Request(f"http://{address}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                return json.loads(answer.read() or b"{}")

        for item in ("1", "2", "3"):
            request_id = post("/v1/slates", {"items": [item]})["request_id"]
            post("/v1/feedback", {"request_id": request_id, "position": 0, "value": 1, "event_id": item})
        process.kill()


def npy(kind: str, columns_first: bool) -> bytes:
    head = f"{{'descr': '{kind}', 'fortran_order': {columns_first}, 'shape': (3, 2), }}".ljust(117) + "\n"
    numbers = struct.pack(kind[0] + "6" + {"4": "f", "8": "d"}[kind[-1]], *range(6))
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + numbers


def safetensors() -> bytes:
    head = json.dumps({"v": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]}}).encode()
    return struct.pack("<Q", len(head)) + head + struct.pack("<6f", *range(6))


def zipped(name: str, text: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return file.getvalue()


def seeds() -> dict[str, list[bytes]]:
    def read(path: str) -> bytes:
        return (made / path).read_bytes()

    rows = read("log.csv").splitlines(keepends=True)
    log = b"".join(rows[:40])
    movies = b"userId,movieId,rating,timestamp\n1,2,5.0,10\n1,3,2.5,11\n2,2,4.0,12\n"
    checkpoint = max((made / "run" / "checkpoints").iterdir(), key=lambda path: int(path.name.removeprefix("step-")))
    manifest = read("bundle-exact/bundle.toml").rsplit(b"\n[digest]\n", 1)[0]
    asked = [
        {"items": ["1", "2"], "k": 3},
        {"user": "7", "newer": ["4"], "exclude": ["5"], "exclude_seen": False},
        {"context": [0.5] * 8, "explore": True, "max_per_group": 1},
        {"requests": [{"user": "1"}, {"items": []}], "strict": True, "allow": ["1", "2", "3"], "deny": ["2"], "exact": True},
    ]
    segments = [path.read_bytes() for path in sorted((made / "log").glob("*.rows"))]
    event = {"request_id": "REQUEST", "position": 0, "value": 1, "event_id": "a"}
    digest = re.search(rb'\[digest\]\nblake3 = "(\w+)"', read("bundle/bundle.toml"))[1]
    search = b"slate/q1" + digest + struct.pack("<4I8f3I", 3, 0, 1, 8, *range(8), 0, 1, 2)
    return {
        "settings": [b"\0" + read("run/run.toml"), b"\0seed = 3\n[method]\nkind = 'pl-rank'\nsamples = 8\n", b"\1method.sigma=0.5", b"\1budget=1 epoch"],
        "grid": [path.read_bytes() for path in sorted((ROOT / "examples" / "paper").glob("*.toml"))],
        "npy": [npy("<f4", False), npy(">f8", True)],
        "safetensors": [safetensors(), read("data/embeddings.safetensors")],
        "checkpoint": [b"\0" + read("run/run.toml"), b"\1" + (checkpoint / "state.toml").read_bytes(), b"\2" + (checkpoint / "model.bpk").read_bytes()],
        "bundle": [b"\0" + manifest, b"\1" + read("bundle-exact/vectors.safetensors"), b"\2" + read("bundle-exact/model.safetensors")],
        "http": [
            *(b"\0" + json.dumps(body).encode() for body in asked),
            b"\2" + json.dumps(event).encode(),
            b"\3" + search,
            b"\4" + b"q=a&limit=5",
            b"\5GET /v1/bundle HTTP/1.1\r\nhost: localhost\r\n\r\n",
            b"\5POST /v1/slates HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ],
        "log": [*(b"\0" + segment for segment in segments), *(b"\1" + segment[32 : 32 + struct.unpack_from("<I", segment, 20)[0]] for segment in segments)],
        "csv": [log, movies, b'user_id;"item_id"\n"a""b";2\n', b"user_id\titem_id\n1\t2\n"],
        "gzip": [gzip.compress(log), gzip.compress(b"user_id,item_id\n1,2\n") * 2],
        "zip": [zipped("ml-25m/ratings.csv", movies), zipped("ratings.csv", movies), zipped("a.csv", log)],
        "parquet": [read("log.parquet"), read("bundle/users.parquet")],
        "index": [read("bundle/index.usearch")],
    }


if not made.exists():
    make()
for target, files in seeds().items():
    folder = work / "seeds" / target
    folder.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files):
        (folder / str(number)).write_bytes(file)



def fuzzed(target: str, *args: object) -> subprocess.CompletedProcess:
    # Safe Rust needs no sanitizer, and it would slow all by three times.
    command = ["cargo", "+nightly", "fuzz", "run", "--sanitizer", "none", target, *map(str, args)]
    environment = {**os.environ, "FUZZ_MADE": str(made.resolve())}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace")


for target in sys.argv[5:] or OURS + DEPENDENCIES:
    kept, all_, found, fresh = (folder / target for folder in (ROOT / "fuzz/corpus", work / "corpus", work / "found", work / "fresh"))
    for folder in (kept, all_, found):
        folder.mkdir(parents=True, exist_ok=True)
    # A reader that hangs or holds too much has failed; what usearch holds is counted by the second limit alone.
    limits = ["-timeout=5", "-rss_limit_mb=4096", "-max_len=65536", "-print_final_stats=1", f"-artifact_prefix={found}/"]
    until = f"-runs={executions}" if target in OURS else f"-max_total_time={seconds}"
    before = set(found.iterdir())
    fuzzed(target, all_, "--", "-runs=0")  # builds it
    began = time.monotonic()
    told = fuzzed(target, all_, kept, work / "seeds" / target, "--", *limits, until)
    taken = time.monotonic() - began
    (work / f"{target}.log").write_text(told.stderr)
    done = re.findall(r"stat::number_of_executed_units:\s*(\d+)", told.stderr)
    covered = re.findall(r"cov: (\d+)", told.stderr)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    fuzzed(target, fresh, all_, kept, "--", "-set_cover_merge=1", "-max_len=65536", f"-artifact_prefix={found}/")
    merged = sorted(fresh.iterdir(), key=lambda path: (path.stat().st_size, path.name))
    if merged:
        shutil.rmtree(kept)
        kept.mkdir()
    size = 0
    for path in merged:
        size += path.stat().st_size
        if size <= KEPT:
            shutil.copy(path, kept)
    row = {
        "reader": target,
        "executions": int(done[-1]) if done else 0,
        "seconds": round(taken),
        "edges": int(covered[-1]) if covered else 0,
        "kept": len(list(kept.iterdir())),
        "found": sorted(path.name for path in set(found.iterdir()) - before),
        "ended": told.returncode,
    }
    print(json.dumps(row), flush=True)
