"""What visitors may do to `slate serve`, and what it does then: abuse.py SLATE WORK SCALE

SCALE multiplies how many connections and requests there are: 1 is 5 000 connections. A line of JSON for each abuse: the
answers by status, whether an ordinary request is answered within a second while it lasts and after it, and the server's own
memory before and after. The server has a read token, an admin token, and its usual limits but for --max-connections.
"""

import concurrent.futures
import http.client
import json
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from verbs import Bench, end, environment, said

slate, work, scale = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
bench = Bench(slate, work)
CONNECTIONS = int(5000 * scale)
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
READ, ADMIN = "r" * 32, "a" * 32
tokens = [tempfile.NamedTemporaryFile("w") for _ in range(2)]
for file, token in zip(tokens, (READ, ADMIN)):
    file.write(token)
    file.flush()
command = bench.command(
    "serve", bench.made / "bundle", "--listen", "127.0.0.1:0", "--timeout", 3, "--max-connections", CONNECTIONS + 100,
    "--read-token-file", tokens[0].name, "--admin-token-file", tokens[1].name, "--log", work / "abused-log",
)  # fmt: skip
subprocess.run(["rm", "-rf", work / "abused-log"], check=True)
server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment())
for line in server.stderr:
    if " on http://" in line:
        PORT = int(line.rsplit(":", 1)[1].split()[0].strip("/"))
        break
else:
    raise SystemExit("the server ended")
# What it says is read, or it would wait for its reader.
threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()


def mib() -> float:
    for line in open(f"/proc/{server.pid}/status"):
        if line.startswith("RssAnon"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def ordinary() -> bool:
    """True if a visitor who does nothing wrong is answered within a second."""
    began = time.monotonic()
    try:
        return ask("POST", "/v1/slates", b'{"user": "1"}', timeout=1) == 200 and time.monotonic() - began < 1
    except OSError:
        return False


def ask(method: str, path: str, body: bytes | None = None, token: str = READ, timeout: float = 10, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=timeout)
    known = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    try:
        connection.request(method, path, body, {**known, **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def raw(data: bytes, wait: float = 10) -> int | str:
    """Sends bytes; the status of what comes back."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=wait) as connection:
        try:
            connection.sendall(data)
            answer = connection.recv(4096)
        except TimeoutError:
            return "silence"
        except OSError:
            return "closed"
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else "closed"


def many(count: int, workers: int, one) -> Counter:
    found: Counter = Counter()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for status in pool.map(one, range(count)):
            found[status] += 1
    return found


def head(path: str = "/v1/slates", more: str = "") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{PORT}\r\nauthorization: Bearer {READ}\r\n"
        f"content-type: application/json\r\n{more}"
    ).encode()


def held(count: int, first: bytes, then: bytes, seconds: float) -> tuple[Counter, bool]:
    """Opens connections that send a little and go on sending too little; what they are told in the end."""
    opened = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", PORT), timeout=20)
        connection.sendall(first)
        opened.append(connection)
    answered, until, found = True, time.monotonic() + seconds, Counter()
    while time.monotonic() < until:
        for connection in opened:
            try:
                connection.sendall(then)
            except OSError:
                pass
        answered &= ordinary()
        time.sleep(0.5)
    for connection in opened:
        try:
            answer = connection.recv(4096)
            found[int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else "closed"] += 1
        except OSError:
            found["closed"] += 1
        connection.close()
    return found, answered


def slow_heads():
    return held(max(10, CONNECTIONS // 5), b"POST /v1/slates HTTP/1.1\r\nhost: x\r\n", b"a: b\r\n", 5)


def slow_bodies():
    return held(max(10, CONNECTIONS // 5), head(more="content-length: 100000\r\n\r\n"), b" ", 5)


def idle_connections():
    return held(CONNECTIONS, b"", b"", 5)


def flood():
    body = json.dumps({"requests": [{"user": str(user)} for user in range(1, 500)]}).encode()
    answered = []
    found = many(int(2000 * scale) + 50, 128, lambda at: (at % 100 == 0 and answered.append(ordinary()), ask("POST", "/v1/slates", body))[1])
    return found, None


def large_bodies():
    found = Counter()
    found[raw(head(more="content-length: 1000000000000\r\n\r\n"))] += 1
    found[raw(head(more="content-length: 50000000\r\n\r\n") + b"[" + b"1," * 25_000_000)] += 1
    found[raw(head(more="transfer-encoding: chunked\r\n\r\n") + b"100000\r\n" + b"1" * 2**20 + b"\r\n" * 2)] += 1
    found[ask("POST", "/v1/slates", json.dumps({"items": ["x" * 900_000]}).encode())] += 1
    found[ask("POST", "/v1/slates", json.dumps({"requests": [{}] * 100_000}).encode())] += 1
    found[ask("POST", "/v1/slates", b'{"user": "1", "k": 1' + b"0" * 5000 + b"}")] += 1
    return found, ordinary()


def nested_bodies():
    found = Counter()
    for depth in (100, 10_000, 400_000):
        found[ask("POST", "/v1/slates", b"[" * depth)] += 1
        found[ask("POST", "/v1/slates", b'{"items":' * (depth // 5) + b"1" + b"}" * (depth // 5))] += 1
        found[ask("POST", "/v1/feedback", b'{"request_id":' + b"[" * depth + b"]" * depth + b"}")] += 1
    return found, ordinary()


def large_heads():
    found = Counter()
    found[raw(head(more="".join(f"x-{at}: y\r\n" for at in range(20_000)) + "\r\n"))] += 1
    found[raw(head(more=f"x: {'y' * 4_000_000}\r\n\r\n"))] += 1
    found[raw(b"GET /" + b"a" * 4_000_000 + b" HTTP/1.1\r\n\r\n")] += 1
    found[raw(b"\x00\xff" * 100_000)] += 1
    found[raw(b"GET / HTTP/9.9\r\n\r\n")] += 1
    found[raw(head(more="content-length: 2\r\ncontent-length: 3\r\n\r\n{}"))] += 1
    found[raw(head(more="content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}"))] += 1
    return found, ordinary()


def other_paths():
    ways = ["/../../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/v1/../../etc/passwd"]
    ways += ["/static/../Cargo.toml", "/%00", "/v1/slates%00", "/v1/items?q=../../etc/passwd", "http://127.0.0.1/etc/passwd"]
    found = Counter(ask("GET", way) for way in ways)
    found[raw(b"GET ../../etc/passwd HTTP/1.1\r\nhost: x\r\n\r\n")] += 1
    return found, ordinary()


def guessed_tokens():
    guesses = ["", "r", "a" * 31, "a" * 33, "A" * 32, "a" * 31 + "b", "Bearer " + ADMIN, ADMIN + "\u00e9", READ]
    one = lambda at: ask("POST", "/v1/reload", b"", token=guesses[at % len(guesses)])  # noqa: E731
    return many(int(2000 * scale) + 50, 16, one), ordinary()


def reload_storm():
    answered = []

    def one(at: int) -> int:
        if at % 20 == 0:
            answered.append(ordinary())
        return ask("POST", "/v1/reload", b"", token=ADMIN, timeout=60)

    return many(int(400 * scale) + 20, 16, one), all(answered)


def forged_feedback():
    def one(at: int) -> int:
        event = {"request_id": f"{at:064x}", "position": at, "value": 1e308, "event_id": "x" * (at % 300)}
        return ask("POST", "/v1/feedback", json.dumps(event).encode())

    return many(int(2000 * scale) + 50, 16, one), ordinary()


def readers_that_stop():
    """They ask for much and read nothing."""
    body = json.dumps({"requests": [{"user": str(user), "k": 200} for user in range(1, 600)]}).encode()
    request = head(more=f"content-length: {len(body)}\r\n\r\n") + body
    opened = []
    for _ in range(20):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", PORT))
        connection.sendall(request)
        opened.append(connection)
    time.sleep(6)
    answered = ordinary()
    found = Counter()
    for connection in opened:
        connection.settimeout(1)
        try:
            line = connection.recv(12)
        except OSError:
            line = b""
        found[int(line[9:]) if line.startswith(b"HTTP/1.1 ") else "nothing"] += 1
        connection.close()
    return found, answered


ask("POST", "/v1/slates", b'{"user": "1"}')
for abuse in (
    slow_heads, slow_bodies, idle_connections, flood, large_bodies, nested_bodies, large_heads, other_paths, guessed_tokens,
    reload_storm, forged_feedback, readers_that_stop,
    flood,  # what the first one left is used again
):  # fmt: skip
    before, began = mib(), time.monotonic()
    found, meanwhile = abuse()
    seconds = time.monotonic() - began
    time.sleep(1)
    row = {"abuse": abuse.__name__.replace("_", " "), "answers": {str(status): count for status, count in sorted(found.items(), key=str)}}
    row |= {"answered_meanwhile": meanwhile, "answered_after": ordinary(), "alive": server.poll() is None}
    memory = {"mib_before": before, "mib_after": mib(), "seconds": round(seconds, 1)}
    said(row | memory, not (row["alive"] and row["answered_after"]))
server.terminate()
if server.wait() != 0:
    raise SystemExit(f"the server ended with {server.returncode}")
end()
