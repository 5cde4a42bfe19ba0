"""The verbs that write, on small made-up data, and how one tells that two of them wrote the same."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

COLUMNS = ["--user-column", "user_id", "--item-column", "item_id", "--min-user-interactions", "5"]
GRID = """
title = "Two methods"
preset = "paper"
methods = ["lgp", "pl-rank"]
samples = [4]
slate_sizes = [3]
seeds = [0, 1]
equal = "iterations"
budget = "20 steps"
evaluations = 2
figures = ["reward-over-steps", "final-reward"]

[[data]]
name = "synthetic"
synth = { users = 200, actions = 300, density = 0.1 }
prepare = { preset = "paper", no-index = true }
"""
# What a clock, a process or the name of a folder has a part in.
CLOCKS = re.compile(r'("?\w*(?:seconds|per_second|time|nanos|began|ended|busy)\w*"?\s*[:=]\s*)[-0-9.e+]+')


class Bench:
    """The files that verbs read, made once."""

    def __init__(self, slate: str, folder: Path) -> None:
        self.slate, self.folder = slate, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.log, self.grid = folder / "log.csv", folder / "grid.toml"
        self.grid.write_text(GRID)
        shutil.rmtree(folder / "made", ignore_errors=True)
        made = folder / "made"
        made.mkdir()
        self.ran("synth", "--users", 600, "--actions", 800, "--density", 0.03, "--out", self.log, "--force")
        self.ran("prepare", self.log, *COLUMNS, "--embeddings", "svd", "--latent-dim", 16, "--out", made / "data")
        self.ran("train", "--data", made / "data", "--out", made / "run", "--steps", 100)
        self.ran("export", made / "run", "--out", made / "bundle", "--histories", "--index")
        self.ran("train", "--data", made / "data", "--out", made / "other", "--steps", 20, "--seed", 1)
        self.ran("export", made / "other", "--out", made / "other-bundle", "--histories", "--index")
        # The training of a trial fits its own folds.
        shutil.rmtree(made / "data" / "folds")
        self.made = made

    def command(self, *words: object) -> list[str]:
        return [self.slate, *map(str, words)]

    def ran(self, *words: object) -> str:
        told = subprocess.run(self.command(*words), capture_output=True, text=True, env=environment())
        if told.returncode != 0:
            raise SystemExit(f"slate {' '.join(map(str, words))}\n{told.stderr}")
        return told.stdout

    def begin(self, place: Path) -> None:
        """An empty place for a trial, with data of its own that training adds folds to."""
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        shutil.copytree(self.made / "data", place / "data")

    def words(self, verb: str, place: Path) -> list[str]:
        """The command of a verb; one that was interrupted is begun again or resumed, as its user would."""
        out, data, made = place / "out", place / "data", self.made
        search = ["--trials", 3, "--steps", 60]
        return self.command(
            *{
                "prepare": ["prepare", self.log, *COLUMNS, "--embeddings", "svd", "--latent-dim", 16, "--out", out],
                "prepare, league": ["prepare", self.log, *COLUMNS, "--within", 120, "--out", out],
                "train": ["train", "--data", data, "--out", out, "--steps", 200, *(["--resume"] if (out / "run.toml").exists() else [])],
                "tune": ["tune", "--data", data, "--out", out, *(["--resume"] if (out / "tune.toml").exists() else search)],
                "compare": ["compare", self.grid, "--out", out],
                "export": ["export", made / "run", "--out", out, "--histories", "--index", "--onnx"],
                "export, shards": [
                    *["export", made / "run", "--out", out, "--histories", "--index", "--shards", 2],
                    # The bundle comes last, and a shard that is there already is not replaced unasked.
                    *(["--force"] if (place / "out-1-of-2").exists() else []),
                ],
                "recommend": ["recommend", made / "bundle", "--users", made / "bundle" / "users.parquet", "--out", out],
            }[verb]
        )

    def finish(self, verb: str, place: Path) -> None:
        """Adds what a checkpoint holds, for its own files name their tensors differently each time."""
        if verb == "train":
            last = ["export", place / "out", "--checkpoint", "last", "--out", place / "last"]
            self.ran(*last, "--index=false")

    def is_done(self, verb: str, place: Path) -> bool:
        """True if a verb that shows its result at once has shown it."""
        return (place / "out").exists() and verb not in RESUMED

    def whole(self, verb: str, place: Path) -> bool:
        """True if what has its final name is whole: a folder or file of a verb that shows it at once."""
        out = place / "out"
        if not self.is_done(verb, place):
            return True
        if verb == "recommend":
            return out.stat().st_size > 8 and out.read_bytes()[-4:] == b"PAR1"
        return subprocess.run(self.command("info", out), capture_output=True, env=environment()).returncode == 0


def served(bench: Bench, bundle: Path, log: Path, *flags: str) -> tuple[subprocess.Popen, int]:
    """A server with a log, and its port."""
    command = bench.command("serve", bundle, "--listen", "127.0.0.1:0", "--log", log, *flags)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment())
    for line in process.stderr:
        if " on http://" in line:
            return process, int(line.rsplit(":", 1)[1].split()[0].strip("/"))
    raise SystemExit("the server ended")


RESUMED = ("train", "tune", "compare")
VERBS = ["prepare", "prepare, league", "train", "tune", "compare", "export", "export, shards", "recommend"]


def environment() -> dict[str, str]:
    return {**os.environ, "NODEVICE_SELECT": "1", "RUST_BACKTRACE": "0"}


def digests(place: Path) -> dict[str, str]:
    """A digest of each file below, without its clocks; files of text lose the name of the place."""
    found = {}
    for path in sorted(place.rglob("*")):
        # A later writer removes what has no name yet, or has lost it.
        is_partial = any(".partial-" in part for part in path.parts)
        if not path.is_file() or is_partial or path.name == "run.lock" or path.suffix == ".log":
            continue
        content = path.read_bytes()
        if path.suffix in (".json", ".jsonl", ".toml", ".md", ".html", ".svg"):
            # What a full disk had room for was begun in a folder of its own there.
            text = content.decode().replace(str(place / "small"), "PLACE").replace(str(place), "PLACE")
            content = CLOCKS.sub(r"\1", text).encode()
        found[str(path.relative_to(place))] = hashlib.sha256(content).hexdigest()
    return found


def reference(bench: Bench, verb: str, place: Path) -> tuple[dict[str, str], set[str], float]:
    """What a verb writes undisturbed, the files that differ from one such run to the next, and its seconds."""
    import time

    runs = []
    for _ in range(2):
        bench.begin(place)
        started = time.monotonic()
        subprocess.run(bench.words(verb, place), check=True, capture_output=True, env=environment())
        seconds = time.monotonic() - started
        bench.finish(verb, place)
        runs.append(digests(place))
    one, other = runs
    assert one.keys() == other.keys(), set(one) ^ set(other)
    return one, {name for name in one if one[name] != other[name]}, seconds


def differences(found: dict[str, str], wanted: dict[str, str], loose: set[str]) -> list[str]:
    """The names of files that are more, fewer or others."""
    return sorted(
        name
        for name in found.keys() | wanted.keys()
        if name not in loose and found.get(name) != wanted.get(name) or (name in found) != (name in wanted)
    )


FAILED: list[dict] = []


def said(row: dict, failed: bool = False) -> None:
    print(json.dumps(row), flush=True)
    if failed:
        FAILED.append(row)


def end() -> None:
    """Ends the script, with an error if a row failed."""
    raise SystemExit(f"failed: {json.dumps(FAILED)}" if FAILED else 0)
