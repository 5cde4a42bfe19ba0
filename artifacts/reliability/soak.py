"""A server at half its load for long: soak.py SLATE BUNDLE SECONDS SVG

The load is half of what four clients get that ask as fast as they can. Every ten seconds a line of JSON: the server's own
memory, its open descriptors, answers, failures and the 99th percentile since the line before. SVG gets the plot of memory and
descriptors.
"""

import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
from verbs import environment, said

slate, bundle, seconds, plot = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
CLIENTS = 4
log = tempfile.TemporaryDirectory()
command = [slate, "serve", str(bundle), "--listen", "127.0.0.1:0", "--log", log.name]
server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment())
for line in server.stderr:
    if " on http://" in line:
        PORT = int(line.rsplit(":", 1)[1].split()[0].strip("/"))
        break
else:
    raise SystemExit("the server ended")
threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()
users = [str(user) for user in pq.read_table(bundle / "users.parquet")["user_id"].to_pylist()]
lock, times, failed = threading.Lock(), [], 0


def client(first: int, rate: float | None, until: float) -> None:
    """Asks for slates, and sends feedback for each tenth."""
    global failed
    connection, began, at = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10), time.monotonic(), first
    while time.monotonic() < until:
        due = began + (at - first) / CLIENTS / rate if rate else time.monotonic()
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            answer = post(connection, "/v1/slates", {"user": users[at % len(users)]})
            if at // CLIENTS % 10 == 0:
                post(connection, "/v1/feedback", {"request_id": answer["request_id"], "position": 0, "value": 1, "event_id": str(at)})
        except (OSError, ValueError, http.client.HTTPException):
            with lock:
                failed += 1
            connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
        with lock:
            times.append(time.monotonic() - due)
        at += CLIENTS


def post(connection: http.client.HTTPConnection, path: str, body: dict) -> dict:
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status >= 300:
        raise ValueError(text)
    return json.loads(text or b"{}")


def begin(rate: float | None, lasting: float) -> list[threading.Thread]:
    until = time.monotonic() + lasting
    clients = [threading.Thread(target=client, args=(at, rate, until)) for at in range(CLIENTS)]
    for one in clients:
        one.start()
    return clients


most = 5.0
for one in begin(None, most):
    one.join()
rate = len(times) / most / 2 / CLIENTS
clients, began, rows = begin(rate, seconds), time.monotonic(), []
while any(one.is_alive() for one in clients):
    with lock:
        times.clear()
    time.sleep(min(10.0, seconds / 4))
    with lock:
        taken, lost = sorted(times), failed
    status = Path(f"/proc/{server.pid}/status").read_text()
    row = {
        "seconds": round(time.monotonic() - began),
        "mib": round(int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1024, 1),
        "descriptors": len(list(Path(f"/proc/{server.pid}/fd").iterdir())),
        "answers": len(taken),
        "failed": lost,
        "p99_ms": round(1e3 * statistics.quantiles(taken, n=100)[98], 1) if len(taken) > 1 else None,
    }
    rows.append(row)
    said(row)
server.terminate()
if server.wait() != 0:
    raise SystemExit(f"the server ended with {server.returncode}")

WIDTH, HEIGHT = 640, 120
lines = []
for place, key in enumerate(("mib", "descriptors")):
    top = 1.2 * max(row[key] for row in rows)
    points = " ".join(
        f"{50 + (WIDTH - 60) * row['seconds'] / rows[-1]['seconds']:.1f},{(place + 1) * HEIGHT - 20 - (HEIGHT - 40) * row[key] / top:.1f}"
        for row in rows
    )
    lines.append(f'<polyline fill="none" stroke="black" points="{points}"/>')
    lines.append(f'<text x="50" y="{place * HEIGHT + 15}">{key}, up to {max(row[key] for row in rows):g}</text>')
lines.append(f'<text x="{WIDTH - 110}" y="{2 * HEIGHT - 4}">{rows[-1]["seconds"]} s</text>')
plot.write_text(
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {2 * HEIGHT}" font-family="sans-serif" font-size="12">'
    f"{''.join(lines)}</svg>\n"
)
