"""What a step through shards would take and cost: model.py OVERHEAD

OVERHEAD is what `overhead` wrote. A step takes

    rest + fan-out + search / N + network

where rest is what is no search; fan-out is a line in the number of shards N, fitted to 1, 2 and 4 of them; a search of Q
queries costs c · Q · L · P exactly and Q · (a + b ln P) in a graph. Shards of one host also wait for each other's cores: a second
line, which is 0 where each has its own, so a step is between two numbers. The network is assumed, and so is the price.
"""

import json
import math
import sys

LATENT_DIM, QUERIES, CANDIDATES = 100, 32, 100
MEASURED = {"actions": 40_981, "latent_dim": 512}
# Microseconds of a query in a graph on two cores (docs/performance.md: S = 100 at 50 000 and 750 000 actions).
GRAPH = {50_000: 1e6 / 17.3 / 3200, 750_000: 1e6 / 14.8 / 3200}
# A graph of 12 neighbours (24 on its lowest layer) over vectors of 2 bytes a number, beside the vectors of 4.
GRAPH_BYTES = 2 * LATENT_DIM + 24 * 4 + 16
ASSUMED = {"bytes_per_second": 10e9 / 8, "round_trip_ms": 0.2, "core_hour": 0.05, "cores": 2, "steps": 3000}

rows = [json.loads(line) for line in open(sys.argv[1])]


def of(what: str, shards: int, field: str = "milliseconds") -> float:
    return next(row[field] for row in rows if row["what"] == what and row.get("shards") == shards)


def line(points: dict[int, float]) -> tuple[float, float]:
    """Intercept and slope of the least squares; neither is negative."""
    count, mean_x = len(points), sum(points) / len(points)
    mean_y = sum(points.values()) / count
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points.items()) / sum((x - mean_x) ** 2 for x in points)
    return max(0.0, mean_y - slope * mean_x), max(0.0, slope)


alone = of("search", 0)
rest = of("step", 0) - alone
fan_out = line({count: of("search", count, "fan_out") for count in (1, 2, 4)})
waiting = line({count: of("search", count) - alone - of("search", count, "fan_out") for count in (1, 2, 4)})
cell = alone / (QUERIES * MEASURED["actions"] * MEASURED["latent_dim"])
small, large = GRAPH
growth = (GRAPH[large] - GRAPH[small]) / math.log(large / small)


def step(actions: float, shards: int, graph: bool) -> tuple[float, float]:
    """Milliseconds, without and with what shards of one host wait."""
    own = actions / shards
    if graph:
        search = QUERIES * (GRAPH[small] + growth * math.log(own / small)) / 1e3
    else:
        search = cell * QUERIES * LATENT_DIM * own
    sent = shards * QUERIES * (4 * LATENT_DIM + 8 * CANDIDATES)
    network = 0 if shards == 1 else ASSUMED["round_trip_ms"] + 1e3 * sent / ASSUMED["bytes_per_second"]
    least = rest + fan_out[0] + fan_out[1] * shards + search + network
    return least, least + waiting[0] + waiting[1] * shards


def cost(milliseconds: float, shards: int) -> float:
    hours = milliseconds * ASSUMED["steps"] / 3.6e6
    return hours * shards * ASSUMED["cores"] * ASSUMED["core_hour"]


def range_of(values: tuple[float, float], scale: float = 1, digits: int = 0) -> str:
    return " to ".join(f"{scale * value:,.{digits}f}" for value in values)


print(
    f"rest {rest:.1f} ms; fan-out {fan_out[0]:.2f} + {fan_out[1]:.2f} N ms; waiting on one host {waiting[0]:.2f} + {waiting[1]:.2f} N ms; exact "
    f"search {1e9 * cell:.1f} ms for 10⁹ query · dimension · actions; graph {GRAPH[small]:.1f} + {growth:.2f} ln(P/N / 50 000) µs a query\n"
)
print("| actions | shards | GiB a shard, exact | with a graph | step, exact, ms | step, graph, ms | price of 3 000 steps, graph |\n|---|---|---|---|---|---|---|")
for power in (6, 7, 8, 9):
    for shards in (1, 4, 16, 64, 256):
        own = 10**power / shards
        exact_gib = own * 4 * LATENT_DIM / 2**30
        graph_gib = exact_gib + own * GRAPH_BYTES / 2**30
        if graph_gib > 256 or own < 10**5:
            continue
        exact, graph = (step(10**power, shards, with_graph) for with_graph in (False, True))
        price = range_of((cost(graph[0], shards), cost(graph[1], shards)), digits=2)
        print(f"| 10^{power} | {shards} | {exact_gib:.1f} | {graph_gib:.1f} | {range_of(exact)} | {range_of(graph)} | {price} |")
