"""A front over shards whose one shard stops under load and comes back: degraded.py SLATE FOLDER SHARDS SECONDS

FOLDER has the bundle `whole` and its shards. Requests come at a fixed rate, half of what a front with all
shards answers when eight clients ask as fast as they can; a late one counts from when it was due. Prints a line of JSON for each of
three times: with all shards; with one that is killed a second after it begins; with one that is started again a second
after it begins.
"""
import http.client
import json
import statistics
import sys
import tempfile
import threading
import time

import pyarrow.parquet as pq
from server import Server

slate, folder, shards, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
CLIENTS = 8
token = tempfile.NamedTemporaryFile("w", suffix=".token")
token.write("a-token-of-sixteen-letters-or-more")
token.flush()


def shard(at, port=0):
    return Server(slate, f"{folder}/whole-{at}-of-{shards}", "--admin-token-file", token.name, port=port)


served = [shard(at) for at in range(1, shards + 1)]
addresses = ",".join(server.address for server in served)
front = Server(
    slate, f"{folder}/whole", "--shards", addresses, "--shard-token-file", token.name, "--min-shards", str(shards - 1),
    "--shard-timeout", "200",
)  # fmt: skip
users = [str(user) for user in pq.read_table(f"{folder}/whole/users.parquet")["user_id"].to_pylist()[:5000]]


def asked(rate, lasting):
    """Seconds of each answer from when it was due, how many came of part of the shards, and how many failed."""
    found, lock, began = {"times": [], "flagged": 0, "failed": 0, "last_flagged": 0.0}, threading.Lock(), time.monotonic()
    host, port = front.address.removeprefix("http://").split(":")
    turn = iter(range(10**9))

    def client():
        connection = http.client.HTTPConnection(host, int(port))
        while True:
            with lock:
                at = next(turn)
            due = began + at / rate if rate else time.monotonic()
            if due > began + lasting:
                return
            time.sleep(max(0.0, due - time.monotonic()))
            body = json.dumps({"user": users[at % len(users)]})
            connection.request("POST", "/v1/slates", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            said = json.loads(answer.read())
            now = time.monotonic()
            with lock:
                found["times"].append(now - due)
                found["failed"] += answer.status != 200
                if answer.status == 200 and said["shards"]["answered"] < shards:
                    found["flagged"] += 1
                    found["last_flagged"] = now - began

    clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return found


def said(when, rate, found):
    percentiles = statistics.quantiles([1e3 * time for time in found["times"]], n=100)
    row = {"when": when, "shards": shards, "rate": round(rate), "answers": len(found["times"]), "failed": found["failed"]}
    row |= {"flagged": found["flagged"], "last_flagged_after_seconds": round(found["last_flagged"], 2)}
    row |= {f"p{at}_ms": round(percentiles[at - 1], 1) for at in (50, 99)}
    print(json.dumps(row), flush=True)


asked(None, seconds / 4)
rate = len(asked(None, seconds / 2)["times"]) / (seconds / 2) / 2
said("all", rate, asked(rate, seconds))
port = served[1].address.rsplit(":", 1)[1]
threading.Timer(1, served[1].process.kill).start()
said("one killed", rate, asked(rate, seconds))
served[1].process.wait()


def again():
    served[1] = shard(2, port)


threading.Timer(1, again).start()
said("started again", rate, asked(rate, seconds))
for server in [front, *served]:
    server.stop()
