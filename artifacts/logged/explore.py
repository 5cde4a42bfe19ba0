"""A log of exploring slates to the known users of a bundle, three in ten with a click: explore.py SLATE BUNDLE LOG SLATES"""
import random
import sys
from pathlib import Path

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))
from server import Server

slate, bundle, log, slates = sys.argv[1:]
server = Server(slate, bundle, "--log", log, "--explore-share", "1")
users = pq.read_table(f"{bundle}/users.parquet")["user_id"].to_pylist()
random.seed(1)
clicks = 0
for _ in range(int(slates) // 100):
    requests = [{"user": str(random.choice(users))} for _ in range(100)]
    for answer in server.ask("/v1/slates", {"requests": requests})["answers"]:
        if random.random() < 0.3:
            click = {"request_id": answer["request_id"], "position": random.randrange(5), "value": 1.0, "event_id": str(clicks)}
            server.ask("/v1/feedback", click)
            clicks += 1
server.stop()
