"""Turns the JSON lines of a study into tables.

    python3 table.py coverage.jsonl
    python3 table.py growth.jsonl
"""

import json
import sys
from pathlib import Path

path = Path(sys.argv[1])
cells = [json.loads(line) for line in path.read_text().splitlines()]


def number(value, form):
    return "" if value is None else format(value, form)


def click(cell):
    kind, value = cell["click"]["kind"], cell["click"].get("power", cell["click"].get("patience"))
    return f"{kind} ({value:g})"


LEGEND = """\
`rows' worth`: the mean effective sample size of the weights. `width / usual`: the median width of the 95 % interval over
2 · 1.96 · sd(w r) / √n. `truth − bound`: the median of what a lower bound leaves; its coverage is how often it is below
the truth. `no answer`: logs in which no interval was given. Over {logs} logs the standard error of a coverage near 95 %
is {error:.1%}. `item-position` and `cascade DR` are told how often both policies show each action at each position to
each user, by 10 000 slates drawn for each; `cascade DR` is not given conditional chances but makes them of these shares.
"""


def coverage():
    logs = min(cell["logs"] for cell in cells)
    print(LEGEND.format(logs=logs, error=(0.95 * 0.05 / logs) ** 0.5))
    designs = dict.fromkeys((cell["rule"], click(cell), cell["rows_of_person"]) for cell in cells)
    for rule, clicks, rows in designs:
        here = [cell for cell in cells if (cell["rule"], click(cell), cell["rows_of_person"]) == (rule, clicks, rows)]
        one = here[0]
        print(f"σ {rule}, clicks {clicks}, {rows} rows a person; {one['logs']} logs of {one['rows']} rows\n")
        print("| ‖h̃ − h₀‖/σ | truth | rows' worth | estimator | bias | RMSE | coverage | width / usual | truth − bound | no answer |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        last = None
        for cell in here:
            new, last = cell["distance"] != last, cell["distance"]
            # A bound is no estimate: how far it is from the truth stands in its own column.
            is_bound = cell["estimator"] == "gain bound"
            print(
                f"| {number(cell['distance'] if new else None, 'g')} "
                f"| {cell['truth']:.4f} ± {cell['truth_error']:.4f} | {number(cell['effective_rows'] if new else None, '.0f')} | {cell['estimator']} "
                f"| {'' if is_bound else format(cell['bias'], '+.4f')} | {'' if is_bound else format(cell['rmse'], '.4f')} "
                f"| {number(cell['coverage'], '.1%')} | {number(cell['relative_width'], '.2f')} "
                f"| {number(cell['slack'], '.4f')} | {cell['refused'] or ''} |"
            )
        print()


def growth():
    one = cells[0]
    print(f"σ {one['rule']}, ‖h̃ − h₀‖/σ = {one['distance']:g}, logs of {one['rows']} rows: RMSE over that of as many rows on policy\n")
    names = list(dict.fromkeys(cell["estimator"] for cell in cells))
    print("| P | K | logs | truth | sd on policy | " + " | ".join(names) + " | sd(w r) | sd(w (r − R)) | ns a row's weight |")
    print("|---|" + "---|" * (len(names) + 7))
    for size in dict.fromkeys((cell["actions"], cell["slate_size"]) for cell in cells):
        row = {cell["estimator"]: cell for cell in cells if (cell["actions"], cell["slate_size"]) == size}
        first = row[names[0]]
        print(
            f"| {size[0]} | {size[1]} | {first['logs']} | {first['truth']:.4f} ± {first['truth_error']:.4f} | {first['own_deviation']:.3f} | "
            + " | ".join(f"{row[name]['ratio']:.2f} ± {row[name]['ratio_error']:.2f}" for name in names)
            + f" | {row['plain']['by_variance']:.2f} | {row['self-normalised']['by_variance']:.2f} | {first['nanoseconds']:.0f} |"
        )


{"coverage": coverage, "growth": growth}[path.stem]()
