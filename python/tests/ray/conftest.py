"""A Ray of two CPUs on this machine, started by the tests themselves."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from common import policy, slate

if importlib.util.find_spec("ray") is None:
    print("\nLEFT OUT: python/tests/ray, because Ray is not installed (pip install 'ray[data]')")
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def cluster() -> Iterator[None]:
    import ray

    memory = 200 * 1024 * 1024
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=memory, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def run(frame: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, whose prepared data is below it."""
    folder = tmp_path_factory.mktemp("ray") / "run"
    policy().fit(frame, user="user_id", item="item_id", run_dir=folder)
    return folder


@pytest.fixture(scope="session")
def bundles(run: Path) -> dict[int, Path]:
    """The run's bundle with 1, 2 and 4 shards beside it."""
    made = {}
    for count in (1, 2, 4):
        made[count] = run.parent / str(count) / "bundle"
        made[count].parent.mkdir()
        told = slate("export", run, "--out", made[count], "--shards", count, "--histories")
        assert told.returncode == 0, told.stderr
    return made
