"""The raw results of run.sh as tables: table.py OUT"""

import json
import sys
from pathlib import Path

out = Path(sys.argv[1])


def rows(name: str) -> list[dict]:
    path = out / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


if killed := rows("kills"):
    print("| verb | kills | places | as undisturbed | half-written |\n|---|---|---|---|---|")
    for row in killed:
        if row["verb"] != "server":
            print(f"| {row['verb']} | {row['kills']} | {row['places']} | {row['identical']} | {row['half_written']} |")
    for row in (row for row in killed if row["verb"] == "server"):
        print(
            f"\nserver: {row['kills']} kills, {row['acknowledged']} events acknowledged, {row['lost']} lost, {row['twice']} there twice; "
            f"{row['slates']} slates of {row['bundles']} bundles, {row['of_neither_bundle']} of neither\n"
        )
if failed := rows("faults"):
    print("| verb | fault | every | runs | faults made | not started | no harm | error | wrong |\n|---|---|---|---|---|---|---|---|---|")
    for row in (row for row in failed if row["verb"] != "server"):
        print(
            f"| {row['verb']} | {row['fault']} | {row.get('every', '')} | {row['runs']} | {row['injected']} | {row.get('not_started', 0)} | {row['no_harm']} | "
            f"{row['clean_error']} | {len(row.get('wrong', []))} |"
        )
    print()
    for row in (row for row in failed if row["verb"] == "server"):
        print(
            f"{row['fault']}: {row['slates']} slates, the slowest after {row['slowest_ms']} ms; of their events {row['stored']} stored and "
            f"{row['refused']} refused; stored again {row['back_after_s']} s after it went on\n"
        )
if fuzzed := rows("fuzz"):
    print("| reader | executions | seconds | edges | files kept |\n|---|---|---|---|---|")
    for row in fuzzed:
        print(f"| {row['reader']} | {row['executions']:,} | {row['seconds']:,} | {row['edges']:,} | {row['kept']} |".replace(",", " "))
    print()
if abused := rows("abuse"):
    print("| what | answers | answered meanwhile, after | MiB before, after |\n|---|---|---|---|")
    for row in abused:
        answers = ", ".join(f"{count} × {status}" for status, count in row["answers"].items())
        both = ", ".join({True: "yes", False: "no", None: ""}[row[key]] for key in ("answered_meanwhile", "answered_after"))
        print(f"| {row['abuse']} | {answers} | {both} | {row['mib_before']:.0f}, {row['mib_after']:.0f} |")
    print()
if soaked := rows("soak"):
    tenth = max(1, len(soaked) // 10)
    first, last = soaked[tenth : 2 * tenth], soaked[-tenth - 1 : -1]
    most = max(row["mib"] for row in soaked)
    print(
        f"soak: {soaked[-1]['seconds']} s, {sum(row['answers'] for row in soaked)} answers, {soaked[-1]['failed']} failed; own memory "
        f"{first[0]['mib'] if first else soaked[0]['mib']:.0f} MiB after a tenth, {last[-1]['mib'] if last else soaked[-1]['mib']:.0f} at the end, {most:.0f} at most, "
        f"descriptors {min(row['descriptors'] for row in soaked)} to {max(row['descriptors'] for row in soaked)}"
    )
