"""Kills by −9 at random moments of every verb that writes: kills.py SLATE WORK KILLS [VERB...]

KILLS in all, as many for each verb. A verb is killed up to three times in one place, begun again each time, and then left
in peace; what it wrote must be what it writes undisturbed, and what had its final name meanwhile must have been whole. A line of
JSON for each verb. `server` is a server that logs feedback and takes a new bundle again and again: what it acknowledged
must be in the log, once, and it must answer as one of the two bundles does.
"""

import http.client
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from verbs import VERBS, Bench, differences, digests, end, environment, reference, said, served

slate, work, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
dice = random.Random(0)
bench = Bench(slate, work)
each = -(-kills // (len(VERBS) + 1))
IN_ONE_PLACE = 3


def killed(command: list[str], seconds: float) -> bool:
    """True if the process was there to be killed after that time."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment())
    try:
        _, problem = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    if process.returncode != 0:
        raise SystemExit(f"{command}: {problem.decode()}")
    return False


for verb in [verb for verb in sys.argv[4:] if verb in VERBS] if sys.argv[4:] else VERBS:
    place = work / "place"
    wanted, loose, seconds = reference(bench, verb, place)
    row = {"verb": verb, "kills": 0, "places": 0, "identical": 0, "half_written": 0, "loose": sorted(loose)}
    while row["kills"] < each:
        bench.begin(place)
        row["places"] += 1
        for _ in range(IN_ONE_PLACE):
            if not killed(bench.words(verb, place), dice.uniform(0, 1.1 * seconds)):
                break
            row["kills"] += 1
            row["half_written"] += not bench.whole(verb, place)
            if bench.is_done(verb, place):
                break
        else:
            told = subprocess.run(bench.words(verb, place), capture_output=True, text=True, env=environment())
            if told.returncode != 0:
                raise SystemExit(f"{verb}: {told.stderr}")
        bench.finish(verb, place)
        other = differences(digests(place), wanted, loose)
        row["identical"] += not other
        if other:
            row.setdefault("others", []).append(other)
            shutil.copytree(place, work / f"other-{verb.split(',')[0]}-{row['places']}", dirs_exist_ok=True)
    said(row, bool(row["half_written"] or row["identical"] < row["places"]))


class Visitor(threading.Thread):
    """Asks for slates and sends feedback until the server is gone; keeps what was acknowledged."""

    def __init__(self, port: int, user: str) -> None:
        super().__init__(daemon=True)
        self.port, self.user, self.acknowledged, self.slates = port, user, [], []

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            while True:
                answer = self.ask(connection, "/v1/slates", {"user": self.user})
                items = [item["item_id"] for item in answer["slate"]]
                self.slates.append((answer["bundle"], items))
                event = {"request_id": answer["request_id"], "position": 0, "value": 1.0, "event_id": answer["request_id"]}
                self.ask(connection, "/v1/feedback", event)
                self.acknowledged.append(answer["request_id"])
        except (OSError, http.client.HTTPException, ValueError):
            return

    @staticmethod
    def ask(connection: http.client.HTTPConnection, path: str, body: dict) -> dict:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 201, 202, 204):
            raise ValueError(text)
        return json.loads(text or b"{}")


if sys.argv[4:] and "server" not in sys.argv[4:]:
    end()
place = work / "place"
shutil.rmtree(place, ignore_errors=True)
place.mkdir()
link, log = place / "link", place / "log"
bundles = [bench.made / "bundle", bench.made / "other-bundle"]
link.symlink_to(bundles[0])
row = {"verb": "server", "kills": 0, "acknowledged": 0, "lost": 0, "twice": 0, "slates": 0, "of_neither_bundle": 0}
truth: dict[str, dict[str, list]] = {}
acknowledged: list[str] = []
for _ in range(each):
    process, port = served(bench, link, log)
    visitors = [Visitor(port, str(user)) for user in (1, 2, 3, 4)]
    for visitor in visitors:
        visitor.start()
    until = time.monotonic() + dice.uniform(0.02, 0.4)
    while time.monotonic() < until:
        beside = place / "beside"
        beside.symlink_to(bundles[dice.randrange(2)])
        beside.rename(link)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.03)
    process.kill()
    process.wait()
    row["kills"] += 1
    for visitor in visitors:
        visitor.join()
        acknowledged += visitor.acknowledged
        for digest, items in visitor.slates:
            row["slates"] += 1
            # Each bundle has one answer for a user, before and after any kill.
            row["of_neither_bundle"] += truth.setdefault(digest, {}).setdefault(visitor.user, items) != items
row["acknowledged"] = len(acknowledged)
row["bundles"] = len(truth)
bench.ran("log", "join", log, "--out", place / "joined")
import pyarrow.parquet as pq  # noqa: E402

rows = []
for path in (place / "joined").rglob("*.parquet"):
    table = pq.read_table(path)
    if "value" in table.column_names:
        rows += table["request"].to_pylist() if "request" in table.column_names else table["request_id"].to_pylist()
row["lost"] = len(set(acknowledged) - set(rows))
row["twice"] = len(rows) - len(set(rows))
said(row, bool(row["lost"] or row["twice"] or row["of_neither_bundle"]))
end()
