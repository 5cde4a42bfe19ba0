"""Exact search and a training step of latent perturbation in PyTorch, with the work that `slate` does.

usage: peer.py search|step OUT --actions P [--latent-dim "L L"] [--kinds "f32 tf32 f16"] [--queries "N N"]
               [--samples "S S"] [--slate-size "K K"] [--repetitions R] [--device cuda]

Appends a JSON line for every cell to OUT as soon as it is measured. `search`: products with one block of actions
after another, -inf where one of 20 actions is excluded, a running top K that comes down to the host. `step`: noise,
that search for S queries around each of 32 centres with 50 excluded actions each, the reward of the slates for 50
hidden ones, the gradient of a linear tower, Adam. The block is the fastest of a few. In f16, the products are of f16,
and so is their order; ours is that of f32. Every line has the rate of torch.matmul 8192³ of its kind. Median of the
repetitions, each waited for; 5 of what takes more than 0.3 s. A cell that fails is told, and the next goes on.
"""
import argparse, json, statistics, sys, time, traceback

import torch

parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["search", "step"])
parser.add_argument("out")
parser.add_argument("--actions", type=int, required=True)
parser.add_argument("--repetitions", type=int, default=20)
parser.add_argument("--device", default="cuda")
parser.add_argument("--product", type=int, default=8192)
parser.add_argument("--kinds", default="f32 tf32 f16")
for flag, default in [("latent-dim", "100"), ("queries", "3200 320 32"), ("samples", "100 10 1"), ("slate-size", "5 100")]:
    parser.add_argument(f"--{flag}", default=default)
arguments = parser.parse_args()
numbers = lambda text: [int(number) for number in text.split()]

torch.manual_seed(0)
device = torch.device(arguments.device)
card = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
BATCH, CONTEXTS, SIGMA = 32, 4096, 0.1
EXCLUDED = {"search": 20, "step": 50}[arguments.what]
HIDDEN = 50
BLOCKS = [1 << 14, 1 << 16, 1 << 18]
LONG, FEW = 0.3, 5
failed = False


def wait():
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds(work, repetitions, warm_up=1):
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repetitions):
        wait()
        started = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def product_rate(dtype):
    """GFLOP/s of a square product."""
    size = arguments.product
    factor = torch.ones(size, size, device=device, dtype=dtype)
    return 2e-9 * size**3 / seconds(lambda: factor @ factor, 5, 2)


def search(beta, queries, slate_size, excluded, block):
    """The K best of all actions for each query, without its excluded ones `[N, E]`."""
    best, found = None, None
    for start in range(0, len(beta), block):
        part = beta[start : start + block]
        scores = queries @ part.T
        places = excluded - start
        # Without a look at what is inside, which would wait for the card.
        outside = (places < 0) | (places >= len(part))
        limits = torch.full_like(places, -torch.inf, dtype=scores.dtype).masked_fill_(outside, torch.inf)
        scores.scatter_reduce_(1, places.clamp(0, len(part) - 1), limits, "amin")
        top, place = scores.topk(min(slate_size, len(part)))
        top, place = top.float(), place + start
        if best is not None:
            top, place = torch.cat([best, top], 1), torch.cat([found, place], 1)
            top, order = top.topk(slate_size)
            place = place.gather(1, order)
        best, found = top, place
    return best, found


def measured(work):
    """The fastest block, and the seconds with it."""
    times = {}
    for block in BLOCKS:
        try:
            times[block] = seconds(lambda: work(block), 2)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
    block = min(times, key=times.get)
    repetitions = arguments.repetitions if times[block] < LONG else min(FEW, arguments.repetitions)
    return block, seconds(lambda: work(block), repetitions)


def draw(rows, count):
    return torch.randint(arguments.actions, (rows, count), device=device)


def searches(beta, write):
    """A search for each number of queries and each K."""
    latent_dim = beta.shape[1]
    for rows in numbers(arguments.queries):
        queries = torch.randn(rows, latent_dim, device=device).to(beta.dtype)
        excluded = draw(rows, EXCLUDED)
        for slate_size in numbers(arguments.slate_size):
            def work(block):
                return [answer.cpu() for answer in search(beta, queries, slate_size, excluded, block)]

            def cell():
                block, took = measured(work)
                gflops = 2e-9 * arguments.actions * latent_dim * rows / took
                return {"block": block, "milliseconds": 1e3 * took, "gflops": gflops}

            write(cell, queries=rows, slate_size=slate_size)


def steps(beta, write):
    """A step for each S and each K."""
    latent_dim = beta.shape[1]
    contexts = torch.randn(CONTEXTS, latent_dim, device=device)
    observed, hidden = draw(CONTEXTS, EXCLUDED), draw(CONTEXTS, HIDDEN)
    for samples in numbers(arguments.samples):
        for slate_size in numbers(arguments.slate_size):
            theta = torch.eye(latent_dim, device=device, requires_grad=True)
            adam = torch.optim.Adam([theta], lr=1e-3)

            def step(block):
                batch = torch.randint(CONTEXTS, (BATCH,), device=device)
                h = contexts[batch] @ theta
                noise = torch.randn(BATCH, samples, latent_dim, device=device)
                with torch.no_grad():
                    queries = (h.unsqueeze(1) + SIGMA * noise).flatten(0, 1).to(beta.dtype)
                    excluded = observed[batch].repeat_interleave(samples, 0)
                    _, slates = search(beta, queries, slate_size, excluded, block)
                    liked = hidden[batch].repeat_interleave(samples, 0)
                    hits = (slates.unsqueeze(2) == liked.unsqueeze(1)).any(2)
                    reward = hits.float().sum(1).view(BATCH, samples)
                    gradient = (reward.unsqueeze(2) * noise).mean(1) / SIGMA
                loss = -(h * gradient).sum() / BATCH
                adam.zero_grad()
                loss.backward()
                adam.step()
                return float(reward.mean())

            def cell():
                block, took = measured(step)
                return {"block": block, "steps_per_second": 1 / took}

            write(cell, samples=samples, slate_size=slate_size)


for latent_dim in numbers(arguments.latent_dim):
    vectors = torch.randn(arguments.actions, latent_dim, device=device)
    for kind in arguments.kinds.split():
        dtype = torch.float16 if kind == "f16" else torch.float32
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        rate = product_rate(dtype)

        def write(cell, **key):
            global failed
            row = {"what": arguments.what, "actions": arguments.actions, "latent_dim": latent_dim, "kind": kind, **key,
                   "hardware": card, "torch": torch.__version__, "product_gflops": rate}
            try:
                row |= cell()
            except Exception:
                failed = True
                print(f"{row} failed:\n{traceback.format_exc()}", file=sys.stderr)
                return
            with open(arguments.out, "a") as file:
                file.write(json.dumps(row) + "\n")

        {"search": searches, "step": steps}[arguments.what](vectors.to(dtype), write)
    del vectors
sys.exit(failed)
