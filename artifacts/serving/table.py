"""The tables of artifacts/serving: table.py OUT"""
import json
import sys
from pathlib import Path
from statistics import median

out = Path(sys.argv[1])


def read(name):
    return [json.loads(line) for path in sorted(out.glob(name)) for line in path.read_text().splitlines() if line.startswith("{")]


rows = read("load-*.json")
if rows:
    print("| items × L | search | recall | cores | saturating, requests/s | p50 / p99, ms | at half of it, p50 / p99, ms | memory, GiB |")
    print("|---|---|---|---|---|---|---|---|")
for row in rows:
    full, half = row["saturating"], row["half"]
    cores = "one each" if row["pinned"] else "shared"
    rate = f"{full['requests_per_second']:.0f}" if full else "none"
    times = [f"{part['p50_ms']:.1f} / {part['p99_ms']:.1f}" if part else "" for part in (full, half)]
    print(f"| {row['num_actions']:,} × {row['latent_dim']} | {row['search']} | {row['recall']:.3f} | {cores} | {rate} | {times[0]} | "
          f"{times[1]} | {row['peak_gib']:.2f} |")
for path in sorted(out.glob("process-*.json")):
    found = json.loads(path.read_text())
    print(f"\n{path.stem.removeprefix('process-')}, in process, {found['users']} users, {found['threads']} threads:")
    for search in found["searches"]:
        middle, most = search["milliseconds"]
        print(f"- {search['search']}: recall {search['recall']:.3f}, one alone {middle:.2f} ms (99 %: {most:.2f}), "
              f"{search['slates_per_second']:.0f} a second at once")
runs = {}
for row in read("ready.jsonl"):
    runs.setdefault((row["bundle"], row["mapped"], row["cold"]), []).append(row)
if runs:
    print("\n| bundle | files | in memory before | ready, s | first answer, s | memory, GiB | peak of a reload, GiB |")
    print("|---|---|---|---|---|---|---|")
for (bundle, mapped, cold), rows in runs.items():
    of = {name: median(row[name] for row in rows) for name in ("ready", "first_answer", "resident_gib", "peak_of_reload_gib")}
    print(f"| {bundle} | {'mapped' if mapped else 'read'} | {'no' if cold else 'yes'} | {of['ready']:.2f} | {of['first_answer']:.2f} | "
          f"{of['resident_gib']:.2f} | {of['peak_of_reload_gib']:.2f} |")
for row in read("connections.json"):
    print(f"\n{row['connections']} connections, {len(row['waves'])} times: {row['answers']} in {row['seconds']:.1f} s, one more: "
          f"{row['one_more']}; memory {row['before_gib']:.3f} GiB before, open and after: "
          + ", ".join(f"{wave['open_gib']:.3f} and {wave['after_gib']:.3f}" for wave in row["waves"]))
for row in read("implicit.json"):
    for k, found in row["k"].items():
        theirs = found.pop("implicit")
        print(f"\nK = {k}, {row['users']} users, {row['shape']}, {row['threads']} threads; implicit: {theirs['one_ms']:.2f} ms for one, "
              f"{theirs['per_second']:.0f} a second at once")
        for search, ours in found.items():
            print(f"- {search}: recall {ours['recall']:.3f}, one {ours['one_ms']:.2f} ms ({ours['one_times']:.1f} times), "
                  f"{ours['per_second']:.0f} a second ({ours['all_times']:.1f} times)")
