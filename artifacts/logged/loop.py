"""The closed loops of NAME-SEED.json in a folder, NAME being loop or direct → a table: python3 loop.py FOLDER NAME"""
import glob, json, math, statistics, sys


def beyond(count, rows, share):
    """The chance of `count` or fewer out of `rows` where each has the chance `share`."""
    return sum(math.comb(rows, at) * share**at * (1 - share) ** (rows - at) for at in range(count + 1))


def most(count, rows):
    """The upper end of the exact (Clopper-Pearson) 95 % interval of a share."""
    low, high = count / max(rows, 1), 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(count, rows, middle) > 0.025 else (low, middle)
    return high


loops = [json.load(open(path)) for path in glob.glob(f"{sys.argv[1]}/{sys.argv[2]}-*.json")]
loops.sort(key=lambda loop: loop["settings"]["seed"])
print("| seed | start | end | LGP on the true reward | gap closed | shipped | worse |\n|---|---|---|---|---|---|---|")
shipped = worse = held = judged = 0
for loop in loops:
    sent = [round for round in loop["rounds"] if round["shipped"]]
    bad = [round for round in sent if round["learned_true_reward"] < round["true_reward"]]
    shipped, worse = shipped + len(sent), worse + len(bad)
    for round in loop["rounds"]:
        if round["estimate"]:
            judged += 1
            held += round["estimate"]["low"] <= round["learned_true_reward"] <= round["estimate"]["high"]
    ends = [loop[name]["exploring"] for name in ("start", "end", "reference")]
    print(f"| {loop['settings']['seed']} | " + " | ".join(f"{end:.4f}" for end in ends)
          + f" | {100 * loop['gap_closed']:.0f} % | {len(sent)} of {len(loop['rounds'])} | {len(bad)} |")
settings = loops[0]["settings"]
print(f"\n{settings['requests']:,} slates a round, {settings['world']['users']:,} users, L = {settings['latent_dim']}. "
      f"Expected clicks on a slate of the policies that explore.")
print(f"Median: {statistics.median(sum(r['shipped'] for r in loop['rounds']) for loop in loops):g} rounds shipped, "
      f"{100 * statistics.median(loop['gap_closed'] for loop in loops):.0f} % of the gap closed.")
print(f"{worse} of {shipped} shipped rounds lowered the true reward (exact 95 % interval of the share: up to "
      f"{100 * most(worse, shipped):.1f} %).")
print(f"The 95 % intervals of {held} of {judged} rounds hold the truth; rounds of a loop share rows.")
