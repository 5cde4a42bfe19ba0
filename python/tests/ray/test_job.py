"""A job whose machine goes away goes on where it was, from shared storage."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from common import NAMES, SETTINGS, model
from pyarrow.fs import S3FileSystem

from fast_slate import prepare
from fast_slate.ray._storage import Storage

CONFIG = """
data = "{data}"
storage = "{storage}"
[policy]
steps = 1500
[shards]
bundle = "{bundle}"
[settings]
"""
PREPARED = {key: of for key, of in SETTINGS.items() if key.startswith("prepare.")}
OWN = {"context.folds": 0, "evaluation.count": 30, "evaluation.patience": 0}


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of an object store on this machine."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    before = dict(os.environ)
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    os.environ.update(dict.fromkeys(keys, "testing"), AWS_EC2_METADATA_DISABLED="true")
    where = {"endpoint_override": f"{host}:{port}", "scheme": "http", "region": "us-east-1"}
    S3FileSystem(**where, allow_bucket_creation=True).create_dir("runs")
    yield f"s3://runs/job?{'&'.join(f'{key}={of}' for key, of in where.items())}"
    os.environ.clear()
    os.environ.update(before)
    server.stop()


def config(path: Path, run: Path, bundle: Path, storage: str) -> Path:
    settings = {**{key: of for key, of in SETTINGS.items() if "prepare" not in key}, **OWN}
    text = CONFIG.format(data=run / "data", storage=storage, bundle=bundle)
    path.write_text(text + "".join(f'"{key}" = {of}\n' for key, of in settings.items()))
    return path


def start(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fast_slate.ray", "train", str(path)]
    environment = {**os.environ, "RAY_ADDRESS": "local"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=environment, start_new_session=True, **pipes)


def end(job: subprocess.Popen[str]) -> None:
    out, err = job.communicate(timeout=180)
    assert job.returncode == 0, out + err


def trained(storage: str, folder: Path) -> bytes:
    assert Storage(storage).fetch(folder)
    return model(folder)


def test_a_job_that_is_killed_ends_as_one_that_was_not(
    run: Path, bundles: dict[int, Path], bucket: str, tmp_path: Path
) -> None:
    whole = str(tmp_path / "whole")
    end(start(config(tmp_path / "whole.toml", run, bundles[2], whole)))
    job = start(path := config(tmp_path / "killed.toml", run, bundles[2], bucket))
    killed = time.monotonic() + 120
    while not (Storage(bucket).manifest() or {}).get("metrics.jsonl"):
        assert time.monotonic() < killed and job.poll() is None, job.communicate()
        time.sleep(0.05)
    # The driver, and everything of its Ray.
    os.killpg(job.pid, signal.SIGKILL)
    job.communicate()
    end(start(path))
    assert trained(bucket, tmp_path / "a") == trained(whole, tmp_path / "b")


def test_storage_keeps_the_last_whole_state(tmp_path: Path) -> None:
    folder, storage = tmp_path / "run", Storage(str(tmp_path / "storage"))
    (folder / "below").mkdir(parents=True)
    (folder / "a").write_text("one")
    (folder / "below" / "b").write_text("two")
    storage.claim()
    storage.store(folder, set())
    # A store that ends before its manifest changes nothing.
    (folder / "a").write_text("another")
    broken = Storage(str(tmp_path / "storage"))
    broken.claim()
    write = broken._write

    def fails(path: str, content: bytes, *, again: bool) -> None:
        if again:
            raise OSError("no space")
        write(path, content, again=again)

    broken._write = fails  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space"):
        broken.store(folder, set())
    assert storage.fetch(tmp_path / "back")
    assert (tmp_path / "back" / "a").read_text() == "one"
    assert (tmp_path / "back" / "below" / "b").read_text() == "two"
    storage.claim()
    storage.store(folder, {"below"})
    assert set(storage.manifest() or {}) == {"a"}
    assert len(list((tmp_path / "storage" / "objects").iterdir())) == 1


def test_of_two_jobs_the_later_one_keeps_the_storage(tmp_path: Path) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    first, second = (Storage(str(tmp_path / "storage")) for _ in range(2))
    first.claim()
    (folder / "a").write_text("one")
    first.store(folder, set())
    second.claim()
    assert second.fetch(other)
    (folder / "a").write_text("two")
    with pytest.raises(ValueError, match="another job has begun to store its run here"):
        first.store(folder, set())
    (other / "a").write_text("three")
    second.store(other, set())
    assert Storage(str(tmp_path / "storage")).fetch(tmp_path / "back")
    assert (tmp_path / "back" / "a").read_text() == "three"


def test_a_job_goes_on_with_its_own_data_alone(
    run: Path, bundles: dict[int, Path], frame: pl.DataFrame, tmp_path: Path
) -> None:
    path = config(tmp_path / "train.toml", run, bundles[2], str(tmp_path / "storage"))
    # Shards of other data would be refused by their vectors.
    shards = f'[shards]\nbundle = "{bundles[2]}"\n'
    path.write_text(path.read_text().replace("steps = 1500", "steps = 60").replace(shards, ""))
    end(start(path))
    prepare(frame.head(len(frame) // 2), tmp_path / "data", **NAMES, settings=PREPARED)
    for data, said in ((tmp_path / "data", "holds other data"), (tmp_path, "expected a folder that")):
        other = tmp_path / "other.toml"
        other.write_text(path.read_text().replace(str(run / "data"), str(data)))
        job = start(other)
        _, err = job.communicate(timeout=120)
        assert job.returncode == 2 and said in err, err


def test_a_config_that_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    for text, said in (
        ("data = 1", "expected data"),
        ('data = "d"\nstorage = "s"\nbundle = "b"', "no key `bundle`"),
        ("data", "Expected '='"),
    ):
        (tmp_path / "config.toml").write_text(text)
        job = start(tmp_path / "config.toml")
        _, err = job.communicate(timeout=60)
        assert job.returncode == 2 and said in err and err.count("\n") == 1, err
