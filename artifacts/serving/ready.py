"""Seconds from the start of `slate serve BUNDLE` to its first answer: ready.py SLATE BUNDLE"""
import json
import sys
import time

from server import Server

slate, bundle = sys.argv[1:]
server = Server(slate, bundle)
server.ask("/readyz")
ready = time.monotonic() - server.started
server.ask("/v1/slates", {"items": []})
answered = time.monotonic() - server.started
resident, _ = server.gib()
server.ask("/v1/reload", {})
_, peak = server.gib()
server.stop()
print(json.dumps({"bundle": bundle.rsplit("/", 1)[-1], "ready": ready, "first_answer": answered,
                  "resident_gib": resident, "peak_of_reload_gib": peak}))
