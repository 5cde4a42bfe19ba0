"""A catalogue in parts answers, trains and recovers as one process does."""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import ray
from common import model, slate, trainer

from fast_slate import Recommender
from fast_slate.ray import ShardedRetriever, recommend

# Shards search exactly, and what a graph misses among the candidates changes the gradient.
SETTINGS = {"method.kind": "lgp", "context.folds": 0, "method.candidates": 15}


def kill(retriever: ShardedRetriever, at: int) -> None:
    """Kills the process of a shard with −9."""
    pid = ray.get(retriever._actors[at].process.remote(), timeout=30)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_slates_are_those_of_one_process(bundles: dict[int, Path], count: int) -> None:
    one = Recommender(bundles[count])
    shards = ShardedRetriever(bundles[count])
    asked = {"k": 20, "exclude": list(one.item_ids_[:7])}
    users = [str(user) for user in one.user_ids_]
    found = Recommender(bundles[count], shards=shards).recommend(users, **asked)
    assert found.to_dict() == one.recommend(users, **asked).to_dict()
    # Almost all is excluded, so that some shards have nothing left.
    rest = list(one.item_ids_[10:])
    found = Recommender(bundles[count], shards=shards).recommend(users, exclude=rest, k=10)
    assert found.to_dict() == one.recommend(users, exclude=rest, k=10).to_dict()
    shards.close()


def test_training_in_any_number_of_shards_is_that_of_one_process(
    run: Path, bundles: dict[int, Path], tmp_path: Path
) -> None:
    one = trainer(settings=SETTINGS).fit(run / "data", run_dir=tmp_path / "one")
    for count in (1, 2, 4):
        shards = ShardedRetriever(bundles[count])
        folder = tmp_path / str(count)
        many = trainer(settings=SETTINGS).fit(run / "data", run_dir=folder, shards=shards)
        assert model(folder) == model(tmp_path / "one")
        assert many.evaluate().to_dict() == one.evaluate().to_dict()
        shards.close()


def test_scores_that_are_off_in_one_shard_are_noticed(
    run: Path, bundles: dict[int, Path], tmp_path: Path
) -> None:
    shards = ShardedRetriever(bundles[2])

    class Shifted:
        vectors, whole = shards.vectors, shards.whole

        def __call__(self, *asked: object) -> object:
            first, (actions, scores) = shards(*asked)
            return [first, (actions, np.float32(1.01) * scores)]

    trainer(settings=SETTINGS).fit(run / "data", run_dir=tmp_path / "one")
    trainer(settings=SETTINGS).fit(run / "data", run_dir=tmp_path / "off", shards=Shifted())
    assert model(tmp_path / "off") != model(tmp_path / "one")
    shards.close()


def test_a_shard_that_is_killed_comes_back_and_training_is_the_same(
    run: Path, bundles: dict[int, Path], tmp_path: Path
) -> None:
    shards = ShardedRetriever(bundles[2])
    settings, killed = {**SETTINGS, "evaluation.count": 10}, 0
    trainer(settings=settings, steps=300).fit(run / "data", run_dir=tmp_path / "whole", shards=shards)

    def now_and_then(content: dict[str, object]) -> None:
        nonlocal killed
        if content["kind"] == "evaluation" and content["step"] and killed < 3:
            kill(shards, killed % 2)
            killed += 1

    again = trainer(settings=settings, steps=300)
    again.fit(run / "data", run_dir=tmp_path / "killed", shards=shards, callback=now_and_then)
    assert killed == 3
    assert model(tmp_path / "killed") == model(tmp_path / "whole")
    shards.close()


def test_a_run_in_shards_goes_on_in_shards(
    run: Path, bundles: dict[int, Path], tmp_path: Path
) -> None:
    shards = ShardedRetriever(bundles[2])

    def stop(content: dict[str, object]) -> None:
        if content["kind"] == "evaluation" and content["step"]:
            raise InterruptedError

    settings = {**SETTINGS, "evaluation.count": 4}
    trainer(settings=settings).fit(run / "data", run_dir=tmp_path / "whole", shards=shards)
    with pytest.raises(InterruptedError):
        folder = tmp_path / "parts"
        trainer(settings=settings).fit(run / "data", run_dir=folder, shards=shards, callback=stop)
    with pytest.raises(ValueError, match="in shards → in one place"):
        trainer(settings=settings).fit(run_dir=folder, resume=True)
    # As many parts as one likes.
    others = ShardedRetriever(bundles[4])
    trainer(settings=settings).fit(run_dir=folder, resume=True, shards=others)
    assert model(folder) == model(tmp_path / "whole")
    shards.close()
    others.close()


def test_a_shard_that_does_not_answer_ends_the_search(bundles: dict[int, Path]) -> None:
    shards = ShardedRetriever(bundles[2], timeout=20)
    answers = Recommender(bundles[2], shards=shards)
    pid = ray.get(shards._actors[1].process.remote(), timeout=30)
    shards.timeout = 1
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError, match="no answer in 1 s of .*bundle-2-of-2"):
            answers.recommend(items=[[]])
    finally:
        os.kill(pid, signal.SIGCONT)
    shards.timeout = 20
    assert len(answers.recommend(items=[[]], k=3)) == 3
    shards.close()


def test_shards_of_another_bundle_are_refused(
    run: Path, bundles: dict[int, Path], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="expected the shards of run beside it, found none"):
        ShardedRetriever(run)
    with pytest.raises(ValueError, match="is no shard"):
        ShardedRetriever([bundles[1]])
    with pytest.raises(ValueError, match="expected each shard of one bundle once"):
        ShardedRetriever([f"{bundles[2]}-1-of-2", f"{bundles[2]}-1-of-2"])
    other = tmp_path / "other"
    assert slate("export", run, "--out", other, "--scalar", "f16").returncode == 0
    shards = ShardedRetriever(bundles[2])
    with pytest.raises(ValueError, match="shards: expected those of .*other, found another"):
        Recommender(other, shards=shards)
    with pytest.raises(ValueError, match="hold other vectors"):
        other = trainer(settings={**SETTINGS, "embedding.power": 1.0})
        other.fit(run / "data", run_dir=tmp_path / "run", shards=shards)
    assert not (tmp_path / "run").exists()
    shards.close()


def test_a_shard_that_comes_back_as_another_is_refused(
    run: Path, bundles: dict[int, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    assert slate("export", run, "--out", other, "--shards", 2, "--scalar", "f16").returncode == 0
    links = [tmp_path / f"link-{at}" for at in (1, 2)]
    for at, link in enumerate(links, 1):
        link.symlink_to(f"{bundles[2]}-{at}-of-2")
    shards = ShardedRetriever(links, timeout=60)
    answers = Recommender(bundles[2], shards=shards)
    assert len(answers.recommend(items=[[]], k=3)) == 3
    links[1].unlink()
    links[1].symlink_to(f"{other}-2-of-2")
    kill(shards, 1)
    with pytest.raises(ValueError, match="link-2: was replaced.*found part 2 of 2 of the bundle"):
        answers.recommend(items=[[]], k=3)
    shards.close()


def test_rounded_shards_are_not_trained_in(run: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    asked = ("--scalar", "f16", "--histories", "--shards", 2)
    assert slate("export", run, "--out", bundle, *asked).returncode == 0
    shards = ShardedRetriever(bundle)
    with pytest.raises(ValueError, match="`shards`: hold other vectors"):
        trainer(settings=SETTINGS).fit(run / "data", run_dir=tmp_path / "run", shards=shards)
    # What was trained in f32 answers with them.
    found = Recommender(bundle, shards=shards).recommend(items=[[]], k=3)
    assert found.to_dict() == Recommender(bundle).recommend(items=[[]], k=3).to_dict()
    shards.close()


def test_an_exact_search_is_exact_in_shards_with_an_index(run: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    asked = ("--index", "--histories", "--shards", 2)
    told = slate("export", run, "--out", bundle, *asked)
    assert told.returncode == 0, told.stderr
    shards, asked = ShardedRetriever(bundle), []

    class Told:
        vectors, whole = shards.vectors, shards.whole

        def __call__(self, *queries: object, exact: bool = False) -> object:
            asked.append(exact)
            return shards(*queries, exact=exact)

    answers = Recommender(bundle, shards=Told())
    found = answers.recommend(items=[[]], k=3, exact=True)
    assert found.to_dict() == Recommender(bundle).recommend(items=[[]], k=3, exact=True).to_dict()
    answers.recommend(items=[[]], k=3)
    assert asked == [True, False]

    trained = trainer(settings=SETTINGS).fit(run / "data", run_dir=tmp_path / "run", shards=shards)
    with pytest.raises(ValueError, match="index: .* shards that have an index.*exact=True"):
        trained.evaluate()
    assert trained.evaluate(index=True)
    exact = ShardedRetriever(bundle, exact=True)
    assert shards.has_index and not exact.has_index
    shards.close()
    exact.close()


def test_a_batch_has_a_slate_for_everybody(
    frame: pl.DataFrame, bundles: dict[int, Path], tmp_path: Path
) -> None:
    users = frame.select("user_id").unique(maintain_order=True)
    (tmp_path / "users").mkdir()
    for at, part in enumerate(users.iter_slices(100)):
        part.write_parquet(tmp_path / "users" / f"{at}.parquet")
    wanted = Recommender(bundles[2]).recommend(users["user_id"], k=3)
    wanted = pl.DataFrame(wanted).sort("user", "rank")
    for name, shards in (("alone", None), ("sharded", ShardedRetriever(bundles[2]))):
        out = tmp_path / name
        recommend(bundles[2], str(tmp_path / "users"), str(out), k=3, batch_size=64, shards=shards)
        found = pl.from_arrow(pq.read_table(out)).sort("user", "rank")
        assert found.equals(wanted)
        with pytest.raises(ValueError, match="out: .* holds files already; give overwrite=True"):
            recommend(bundles[2], str(tmp_path / "users"), str(out), k=3)


def test_a_batch_replaces_slates_when_all_are_written(
    frame: pl.DataFrame, bundles: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, out = tmp_path / "users.parquet", tmp_path / "out"
    frame.select("user_id").unique().write_parquet(users)
    out.mkdir()
    pl.DataFrame({"user": [1]}).write_parquet(out / "before.parquet")

    def fails(_slates: object, path: str, **_arguments: object) -> None:
        Path(path).mkdir()
        (Path(path) / "half.parquet").write_bytes(b"half")
        raise OSError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(ray.data.Dataset, "write_parquet", fails)
        with pytest.raises(OSError, match="no space left"):
            recommend(bundles[2], str(users), str(out), overwrite=True)
    assert pq.read_table(out).to_pydict() == {"user": [1]}
    recommend(bundles[2], str(users), str(out), k=3, overwrite=True)
    assert len(pq.read_table(out)) == 3 * frame["user_id"].n_unique()
    assert all(file.suffix == ".parquet" and file.name != "before.parquet" for file in out.iterdir())


def test_a_batch_outlives_its_shards(
    frame: pl.DataFrame, bundles: dict[int, Path], tmp_path: Path
) -> None:
    users = pl.concat([frame.select("user_id").unique(maintain_order=True)] * 40)
    users.write_parquet(tmp_path / "users.parquet")
    shards = ShardedRetriever(bundles[2])
    done, killed = threading.Event(), 0

    def now_and_then() -> None:
        nonlocal killed
        while killed < 3 and not done.wait(0.5):
            kill(shards, killed % 2)
            killed += 1

    killer = threading.Thread(target=now_and_then, daemon=True)
    killer.start()
    try:
        path = str(tmp_path / "users.parquet")
        recommend(bundles[2], path, str(tmp_path / "out"), k=3, batch_size=256, shards=shards)
    finally:
        done.set()
        killer.join()
    assert killed == 3
    found = pl.from_arrow(pq.read_table(tmp_path / "out"))
    assert len(found) == 3 * len(users)
    one = pl.DataFrame(Recommender(bundles[2]).recommend(users["user_id"], k=3))
    assert found.sort("user", "rank").equals(one.sort("user", "rank"))
