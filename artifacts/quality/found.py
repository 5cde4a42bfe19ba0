"""What an earlier evaluation found for each recommender, as `--against` reads it: found.py against-SET-SEED.json"""

import json
import sys


def named(row):
    values = (row.get("settings") or {}).items()
    return row["name"] + "".join(f":{key}={value:g}" for key, value in values)


with open(sys.argv[1]) as file:
    print(",".join(named(row) for row in json.load(file)["against"]))
