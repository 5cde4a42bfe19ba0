"""Seconds from the start of `slate serve BUNDLE` to its first answer: ready.py SLATE BUNDLE [--cold] [FLAG...]

--cold: nothing of the bundle's files is in memory before (needs root).
"""
import json
import os
import sys
import time
from pathlib import Path

from server import Server

slate, bundle, *flags = sys.argv[1:]
if cold := "--cold" in flags:
    flags.remove("--cold")
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")
server = Server(slate, bundle, *flags)
server.ask("/readyz")
ready = time.monotonic() - server.started
server.ask("/v1/slates", {"items": []})
answered = time.monotonic() - server.started
resident, _ = server.gib()
server.ask("/v1/reload", {})
_, peak = server.gib()
server.stop()
print(json.dumps({"bundle": bundle.rsplit("/", 1)[-1], "mapped": "--mmap" in flags, "cold": cold, "ready": ready, "first_answer": answered,
                  "resident_gib": resident, "peak_of_reload_gib": peak}))
