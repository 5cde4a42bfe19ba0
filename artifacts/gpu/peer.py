"""Exact search and a training step of latent perturbation in PyTorch, with the work that `slate` does.

usage: peer.py search|step OUT --actions P --latent-dim L [--queries N,N] [--samples S,S] [--slate-size K,K]
               [--excluded E] [--repetitions R] [--dtype f32|f16] [--device cuda]

Appends a JSON line for every cell to OUT. `search`: products with one block of actions after another, -inf
where an action is excluded, a running top K. `step`: noise, that search for S queries around each of 32
centres, the reward of the slates, the gradient of a linear tower, Adam. The block is the fastest of a few.
TF32 is off, except in rows that say so (--tf32). Every line has the rate of torch.matmul 8192³ at the same
dtype in the same run. Median of the repetitions, after 5 that do not count, each waited for.
"""
import argparse, json, statistics, time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["search", "step"])
parser.add_argument("out")
parser.add_argument("--actions", type=int, required=True)
parser.add_argument("--latent-dim", type=int, default=100)
parser.add_argument("--excluded", type=int, default=20)
parser.add_argument("--repetitions", type=int, default=20)
parser.add_argument("--dtype", choices=["f32", "f16"], default="f32")
parser.add_argument("--tf32", action="store_true")
parser.add_argument("--device", default="cuda")
parser.add_argument("--product", type=int, default=8192)
for name, default in [("queries", "32,320,3200"), ("samples", "1,10,100"), ("slate-size", "5,100")]:
    parser.add_argument(f"--{name}", default=default)
arguments = parser.parse_args()
numbers = lambda text: [int(number) for number in text.split(",")]

torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
device = torch.device(arguments.device)
dtype = {"f32": torch.float32, "f16": torch.float16}[arguments.dtype]
BATCH, CONTEXTS, HIDDEN, SIGMA = 32, 4096, 20, 0.1
BLOCKS = [1 << 14, 1 << 16, 1 << 18]


def wait():
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds(work, repetitions, warm_up=5):
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


def product_rate():
    """GFLOP/s of a square product."""
    size = arguments.product
    factor = torch.ones(size, size, device=device, dtype=dtype)
    return 2e-9 * size**3 / seconds(lambda: factor @ factor, 5, 2)


beta = torch.randn(arguments.actions, arguments.latent_dim, device=device).to(dtype)


def search(queries, slate_size, excluded, block):
    """The K best of all actions for each query, without its excluded ones `[N, E]`."""
    best, found = None, None
    for start in range(0, len(beta), block):
        part = beta[start : start + block]
        scores = (queries @ part.T).float()
        places = excluded - start
        # Without a look at what is inside, which would wait for the card.
        outside = (places < 0) | (places >= len(part))
        limits = torch.full_like(places, -torch.inf, dtype=scores.dtype).masked_fill_(outside, torch.inf)
        scores.scatter_reduce_(1, places.clamp(0, len(part) - 1), limits, "amin")
        top, place = scores.topk(min(slate_size, len(part)))
        place = place + start
        if best is not None:
            top, place = torch.cat([best, top], 1), torch.cat([found, place], 1)
            top, order = top.topk(slate_size)
            place = place.gather(1, order)
        best, found = top, place
    return best, found


def tuned(work):
    """The fastest block."""
    times = {}
    for block in BLOCKS:
        try:
            times[block] = seconds(lambda: work(block), 3, 1)
        except torch.OutOfMemoryError:
            pass
    return min(times, key=times.get)


def write(**cell):
    cell = {"what": arguments.what, "actions": arguments.actions, "latent_dim": arguments.latent_dim,
            "dtype": arguments.dtype, "tf32": arguments.tf32, "device": name, "torch": torch.__version__,
            "product_gflops": rate, **cell}
    with open(arguments.out, "a") as file:
        file.write(json.dumps(cell) + "\n")


name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
rate = product_rate()
draw = lambda rows: torch.randint(arguments.actions, (rows, arguments.excluded), device=device)

if arguments.what == "search":
    for rows in numbers(arguments.queries):
        queries, excluded = torch.randn(rows, arguments.latent_dim, device=device).to(dtype), draw(rows)
        for slate_size in numbers(arguments.slate_size):
            block = tuned(lambda block: search(queries, slate_size, excluded, block))
            took = seconds(lambda: search(queries, slate_size, excluded, block), arguments.repetitions)
            gflops = 2e-9 * arguments.actions * arguments.latent_dim * rows / took
            write(queries=rows, slate_size=slate_size, block=block, milliseconds=1e3 * took, share=gflops / rate)
else:
    contexts = torch.randn(CONTEXTS, arguments.latent_dim, device=device)
    observed = draw(CONTEXTS)
    hidden = torch.randint(arguments.actions, (CONTEXTS, HIDDEN), device=device)
    for samples in numbers(arguments.samples):
        for slate_size in numbers(arguments.slate_size):
            theta = torch.eye(arguments.latent_dim, device=device, requires_grad=True)
            adam = torch.optim.Adam([theta], lr=1e-3)

            def step(block):
                batch = torch.randint(CONTEXTS, (BATCH,), device=device)
                h = contexts[batch] @ theta
                noise = torch.randn(BATCH, samples, arguments.latent_dim, device=device)
                with torch.no_grad():
                    queries = (h.unsqueeze(1) + SIGMA * noise).flatten(0, 1).to(dtype)
                    excluded = observed[batch].repeat_interleave(samples, 0)
                    _, slates = search(queries, slate_size, excluded, block)
                    liked = hidden[batch].repeat_interleave(samples, 0)
                    hits = (slates.unsqueeze(2) == liked.unsqueeze(1)).any(2)
                    reward = hits.float().sum(1).view(BATCH, samples)
                    gradient = (reward.unsqueeze(2) * noise).mean(1) / SIGMA
                loss = -(h * gradient).sum() / BATCH
                adam.zero_grad()
                loss.backward()
                adam.step()
                return float(reward.mean())

            block = tuned(step)
            took = seconds(lambda: step(block), arguments.repetitions)
            write(samples=samples, slate_size=slate_size, block=block, steps_per_second=1 / took)
