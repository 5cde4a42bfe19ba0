"""Requests of known users under load: load.py SLATE OHA BUNDLE index|exact pinned|free SECONDS

Prints one JSON object. The saturating rate is the highest of those tried with fewer than 0.1 % errors and a
99th percentile below 100 ms; requests come at a fixed rate, and a late one counts from when it was due. Pinned:
the server and the generator have a core each.
"""
import json
import subprocess
import sys
import tempfile

import pyarrow.parquet as pq
from server import Server

slate, oha, bundle, search, pinned, seconds = sys.argv[1:]
server_core, oha_core = ("0", "1") if pinned == "pinned" else (None, None)
server = Server(slate, bundle, cores=server_core)
about = server.ask("/v1/bundle")
users = pq.read_table(f"{bundle}/users.parquet")["user_id"].to_pylist()
users = users[:: max(1, len(users) // 5000)]
bodies = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
bodies.writelines(json.dumps({"user": str(user), "exact": search == "exact"}) + "\n" for user in users)
bodies.flush()


def run(rate):
    pin = ["taskset", "-c", oha_core] if oha_core else []
    paced = ["-q", str(rate), "--latency-correction"] if rate else []
    command = [*pin, oha, "--no-tui", "--output-format", "json", "-z", f"{seconds}s", "-c", "64" if rate else "8", *paced,
               "-m", "POST", "-T", "application/json", "-Z", bodies.name, f"{server.address}/v1/slates"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    codes = found["statusCodeDistribution"]
    total = sum(codes.values()) + sum(found["errorDistribution"].values())
    aborted = found["errorDistribution"].get("aborted due to deadline", 0)
    errors = (total - aborted - codes.get("200", 0)) / max(1, total - aborted)
    times = found["latencyPercentiles"]
    return {"rate": rate, "requests_per_second": codes.get("200", 0) / found["summary"]["total"], "errors": errors,
            "p50_ms": 1e3 * times["p50"], "p99_ms": 1e3 * times["p99"]}


run(None)
open_loop = run(None)
most = open_loop["requests_per_second"]
tried, saturating = [], None
for share in (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4):
    found = run(max(1, int(share * most)))
    tried.append(found)
    if found["errors"] < 0.001 and found["p99_ms"] < 100:
        saturating = found
        break
half = run(max(1, int(saturating["rate"] / 2))) if saturating else None
recall = None
for line in server.ask("/metrics").splitlines():
    if line.startswith("slate_index_recall "):
        recall = float(line.split()[1])
resident, peak = server.gib()
server.stop()
print(json.dumps({"bundle": bundle.rsplit("/", 1)[-1], "num_actions": about["num_actions"], "latent_dim": about["latent_dim"],
                  "search": about["retrieval"] if search == "index" else "exact", "recall": recall if search == "index" else 1.0,
                  "pinned": pinned == "pinned", "closed_loop": open_loop, "saturating": saturating, "half": half, "tried": tried,
                  "resident_gib": resident, "peak_gib": peak}))
