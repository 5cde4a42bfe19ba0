"""Joins the JSON of run.sh into tables: means over the seeds of the split.

    python3 table.py OUT

The standard error of a mean over n seeds is the root of the summed squares of the seeds' own, over n; those
are paired, over users. A tenth of the users are test users of a seed, and a user may be one of several: the
variance is taken times 1 + (n − 1) / 10, as if such a user earned the same each time, which is the most that
it can be. A split by time has the same test users for every seed: there the standard error is the mean
of the seeds' own.
"""

import json
import math
import re
import sys
from collections import defaultdict
from pathlib import Path

out = Path(sys.argv[1])
TEST_SHARE = 0.1
NAMES = {
    "ml-2k": "MovieLens (2 149 users)",
    "cds": "Amazon CDs",
    "gowalla": "Gowalla",
    "beauty": "Amazon Beauty, by time",
    "ml-2k-time": "MovieLens (2 149 users), by time",
    "texts": "MovieLens small, text vectors",
    "lastfm": "Last.fm",
    "epinion": "Epinions",
    "foursquare": "Foursquare",
    "citeulike": "CiteULike",
    "amazontoy": "Amazon Toys",
    "amazonoffice": "Amazon Office",
    "bookcrossing": "BookCrossing",
    "amusic": "Amazon Digital Music",
    "grocery": "Amazon Grocery",
    "filmtrust": "FilmTrust",
    "hetrec": "Last.fm 2k (HetRec)",
    "lastfm3": "Last.fm (DeepCF)",
    "atoy": "Amazon Toys (DeepCF)",
    "ml-1m": "MovieLens 1M",
    "yelp": "Yelp (IHGCL)",
    "douban-book": "Douban Book",
    "anime": "Anime (MyAnimeList)",
    "steam": "Steam",
    "kgat-lastfm": "Last.fm (part, KGAT)",
    "sports-time": "Amazon Sports, by time",
    "toys-time": "Amazon Toys (ICLRec), by time",
    "video-time": "Amazon Video Games, by time",
    "yelp-2019-time": "Yelp (ICLRec), by time",
    "ml-100k": "MovieLens 100K",
    "meal-h": "Recipes (MealRec+ H)",
    "meal-l": "Recipes (MealRec+ L)",
    "retailrocket": "Views of a shop (Retailrocket)",
    "yelp-hin": "Yelp (HIN)",
    "tafeng": "Groceries (Ta-Feng)",
    "tafeng-time": "Groceries (Ta-Feng), by time",
    "taobao-cart": "Taobao, carts",
    "tmall-buy": "Tmall, purchases",
    "tmall-collect": "Tmall, favourites",
    "jdata-buy": "JD, purchases",
    "pinterest": "Pinterest",
    "citeulike-t": "CiteULike (t)",
}


def files(pattern):
    """The set, the seed and the content of each file called like this."""
    for path in sorted(path for path in out.glob(pattern + "-*-*.json") if path.stat().st_size):
        name, seed = path.stem.removeprefix(pattern + "-").rsplit("-", 1)
        yield name, int(seed), json.loads(path.read_text())


def standard_error(interval):
    return (interval["high"] - interval["low"]) / 2 / 1.96


def pooled(name, values):
    """The mean of means over the splits of a set, and its standard error."""
    values = list(values)
    mean = sum(mean for mean, _ in values) / len(values)
    if NAMES.get(name, "").endswith("by time"):
        return mean, sum(se for _, se in values) / len(values)
    repeated = 1 + (len(values) - 1) * TEST_SHARE
    return mean, math.sqrt(repeated * sum(se**2 for _, se in values)) / len(values)


def seconds(*names):
    """The wall seconds of some watched commands, or nothing where one of them was not watched."""
    if not all((out / name).exists() for name in names):
        return 0, 0
    rows = [json.loads((out / name).read_text().splitlines()[-1]) for name in names]
    return sum(row["seconds"] for row in rows), max((row["resident_gib"] for row in rows), default=0)


def against():
    rewards, differences, ours, times = defaultdict(list), defaultdict(list), defaultdict(list), defaultdict(list)
    for name, seed, found in files("against"):
        ours[name].append((found["reward"], found["reward_se"]))
        pipeline, memory = seconds(f"prepare-{name}-{seed}.jsonl", f"train-{name}-{seed}-default.jsonl")
        times[name, "policy"].append((pipeline, memory))
        for row in found["against"]:
            key = name, row["name"]
            if "refused" in row:
                print(f"{name} {seed}: {row['name']} refused: {row['refused']}", file=sys.stderr)
                continue
            rewards[key].append((row["reward"], row["reward_se"]))
            # A row of another run of the same rivals on the same users is not paired.
            unpaired = found["reward"] - row["reward"], math.nan
            paired = row.get("difference")
            differences[key].append((paired["mean"], standard_error(paired)) if paired else unpaired)
            times[key].append((row["seconds"], 0))
    if not ours:
        return
    print("| set | recommender | seeds | reward | policy − it | in standard errors | seconds |\n|---|---|---|---|---|---|---|")
    for name, mine in ours.items():
        mean, error = pooled(name, mine)
        took = " ".join(f"{time:.0f}" for time, _ in times[name, "policy"] if time)
        memory = max(memory for _, memory in times[name, "policy"])
        took += f" ({memory:.1f} GiB)" if took else "not measured"
        print(f"| {NAMES.get(name, name)} | **policy** | {len(mine)} | **{mean:.4f}** ± {error:.4f} | | | {took} |")
        for (other, baseline), values in differences.items():
            if other == name:
                (reward, of_reward), (gap, of_gap) = pooled(name, rewards[other, baseline]), pooled(name, values)
                took = " ".join(f"{time:.0f}" for time, _ in times[other, baseline])
                paired = (f" ± {of_gap:.4f}", f"{gap / of_gap:+.1f}") if math.isfinite(of_gap) else ("", "not paired")
                print(
                    f"| | {baseline} | {len(values)} | {reward:.4f} ± {of_reward:.4f} "
                    f"| {gap:+.4f}{paired[0]} ({gap / reward:+.1%}) | {paired[1]} | {took} |"
                )


def gains():
    """The last checkpoint less the start, on test users."""
    rows = defaultdict(list)
    for pattern in ["start-to-last", "reward-diverse-any-hit", "reward-cascade", "reward-reciprocal-rank", "texts"]:
        for name, _, found in files(pattern):
            reward = pattern.removeprefix("reward-").replace("start-to-last", "discounted")
            start = found["start"]["reward"], found["start"]["reward_se"]
            rows[name, reward].append((start, (found["gain"]["mean"], standard_error(found["gain"]))))
    if not rows:
        return
    print("\n| set | reward | seeds | start | last checkpoint − start, 95 % interval |\n|---|---|---|---|---|")
    for (name, reward), values in sorted(rows.items()):
        start, _ = pooled(name, (value for value, _ in values))
        gain, error = pooled(name, (value for _, value in values))
        low, high = gain - 1.96 * error, gain + 1.96 * error
        print(f"| {NAMES.get(name, name)} | {reward} | {len(values)} | {start:.4f} | {gain:+.4f} [{low:+.4f}, {high:+.4f}] |")


def folds():
    """The rewards of the untrained policy on training and on validation users."""
    rows = []
    for path in sorted(out.glob("train-*-metrics.jsonl")):
        found = re.fullmatch(r"train-(.+)-(\d+)-(default|folds-0)-metrics", path.stem)
        if not found:
            continue
        name, seed, run = found.groups()
        count = {"default": 5, "folds-0": 0}[run]
        at_start = [row for row in map(json.loads, path.read_text().splitlines()) if row["step"] == 0 and "split" in row]
        by_split = {row["split"]: (row["reward"], row["reward_se"]) for row in at_start}
        (train, of_train), (validation, of_validation) = by_split["train"], by_split["validation"]
        apart = (train - validation) / math.hypot(of_train, of_validation)
        rows.append(f"| {NAMES.get(name, name)} | {seed} | {count} | {train:.4f} ± {of_train:.4f} | {validation:.4f} ± {of_validation:.4f} | {apart:+.1f} |")
    if rows:
        print("\n| set | seed | folds | training users | validation users | apart, in standard errors |\n|---|---|---|---|---|---|")
        print("\n".join(rows))


against()
gains()
folds()
