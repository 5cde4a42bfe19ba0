"""Rewards in Python, interrupts, and going on."""

import _thread
import logging
import signal
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from common import NAMES, model, policy, slate, trainer

from fast_slate import Batch, SlatePolicy, _native, prepare, train


def discounted(batch: Batch, slates: np.ndarray) -> np.ndarray:
    """The built-in reward of this name."""
    return batch.hits @ (0.5 ** np.arange(slates.shape[1], dtype=np.float32))


def any_hit(batch: Batch, slates: np.ndarray) -> np.ndarray:
    """The built-in reward of this name."""
    return batch.hits.any(axis=1).astype(np.float32)


@pytest.mark.parametrize("method", ["lgp-mips", "pl-pg", "covariance"])
def test_the_same_reward_trains_the_same_parameters(
    frame: pl.DataFrame, tmp_path: Path, method: str
) -> None:
    settings = {"method.kind": method, "method.samples": 4}
    built_in = policy(settings={**settings, "reward.kind": "any-hit"})
    own = built_in.fit(frame, run_dir=tmp_path / "built-in", **NAMES)
    mine = trainer(settings=settings, reward=any_hit, steps=20)
    mine.fit(tmp_path / "built-in" / "data", run_dir=tmp_path / "own")
    assert model(tmp_path / "own") == model(tmp_path / "built-in")
    assert mine.evaluate().to_dict() == own.evaluate().to_dict()
    assert mine.history_.to_dict()["reward"] == own.history_.to_dict()["reward"]


def test_a_run_is_for_what_its_vectors_were_chosen_by(
    frame: pl.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, quick = tmp_path / "data", {"evaluation.count": 2, "method.samples": 8}
    settings = {"prepare.within": 1, "prepare.min_user_interactions": 5, "reward.kind": "dcg"}
    prepare(frame, data, slate_size=3, settings=settings, **NAMES)
    kept = SlatePolicy.load(train(data, tmp_path / "kept", steps=20, settings=quick).run_dir_)
    assert (kept.reward, kept.slate_size, kept.seed) == ("dcg", 3, 0)
    with caplog.at_level(logging.INFO, logger="fast_slate"):
        train(data, tmp_path / "other", steps=20, reward="hits", settings={**quick, "slate_size": 4})
    assert "`prepare` chooses again with reward= and slate_size=" in caplog.text
    other = SlatePolicy.load(tmp_path / "other")
    assert (other.reward, other.slate_size) == ("hits", 4)


def test_settings_count_as_the_arguments_do(frame: pl.DataFrame, tmp_path: Path) -> None:
    own = policy(settings={"slate_size": 4, "seed": 7}).set_params(reward__kind="hits")
    own.fit(frame, run_dir=tmp_path / "run", **NAMES)
    loaded = SlatePolicy.load(tmp_path / "run", checkpoint=20)
    assert (loaded.reward, loaded.slate_size, loaded.seed) == ("hits", 4, 7)
    about = tomllib.loads((tmp_path / "run" / "data" / "prepare.toml").read_text(encoding="utf-8"))
    assert about["settings"]["split"]["seed"] == 7
    assert len(loaded.recommend(loaded.user_ids_[:2])) == 8
    # A run goes on with what it began with.
    with pytest.raises(ValueError, match="user, item: the run in .* goes on with its own data"):
        policy(steps=20).fit(run_dir=tmp_path / "run", resume=True, **NAMES)
    own = policy(steps=20).fit(run_dir=tmp_path / "run", resume=True)
    assert len(own.recommend(loaded.user_ids_[:2])) == 8


def test_a_setting_that_is_given_twice_is_refused() -> None:
    for argument, value, key, other in [
        ("slate_size", 3, "slate_size", 20),
        ("reward", "hits", "reward.kind", "dcg"),
        ("reward", discounted, "reward.kind", "dcg"),
        ("seed", 0, "seed", 7),
        ("steps", 20, "budget.amount", 30),
    ]:
        own = SlatePolicy(**{argument: value}, settings={key: other})
        with pytest.raises(ValueError, match=rf"{argument}: .*settings\['{key}'\].*give one"):
            own.fit("nowhere.csv")
        own.set_params(**{argument: None if callable(value) else other})
        with pytest.raises(FileNotFoundError):
            own.fit("nowhere.csv")


def test_prepared_data_take_nothing_of_a_preparation(fitted: SlatePolicy) -> None:
    data = Path(fitted.run_dir_) / "data"
    with pytest.raises(ValueError) as raised:
        policy(settings={"prepare.rows": "all"}).fit(data, user="user_id", item_embeddings="v.npy")
    named, _, said = str(raised.value).partition(f": {data} is prepared already")
    keys = [f"settings['{key}']" for key in policy().settings if key.startswith("prepare.")]
    expected = ["user", "item_embeddings", "embeddings", *keys, "settings['prepare.rows']"]
    assert named.split(", ") == expected and "leave it out" in said


def test_a_reward_sees_the_halves_of_the_visit(frame: pl.DataFrame) -> None:
    seen: list[tuple[int, tuple[int, ...]]] = []

    def watching(batch: Batch, slates: np.ndarray) -> np.ndarray:
        assert len(batch.row) == len(slates) and batch.slates is slates
        assert slates.dtype == np.int32 and not slates.flags.writeable
        hidden = batch.hidden.to_scipy()
        assert hidden.shape == (len(batch.users), batch.hidden.shape[1])
        expected = [
            np.isin(slate, batch.hidden[row]) for row, slate in zip(batch.row, slates, strict=True)
        ]
        np.testing.assert_array_equal(batch.hits, expected)
        for row, user in enumerate(batch.users):
            assert not set(batch.observed[row]) & set(batch.hidden[row])
            seen.append((int(user), tuple(batch.hidden[row])))
        return batch.hits.sum(axis=1)

    once = {"evaluation.validation_halves": 1}
    policy(reward=watching, steps=40, settings=once).fit(frame, **NAMES)
    by_user: dict[int, set[tuple[int, ...]]] = {}
    for user, hidden in seen:
        by_user.setdefault(user, set()).add(hidden)
    assert max(map(len, by_user.values())) > 1


def test_a_bad_reward_ends_the_run_with_its_own_error(frame: pl.DataFrame) -> None:
    def broken(batch: Batch, slates: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("on purpose")

    cases: list[tuple[Any, type[Exception], str]] = [
        (broken, ZeroDivisionError, "on purpose"),
        (lambda batch, slates: np.zeros(3), ValueError, "expected the shape"),
        (lambda batch, slates: np.full(len(slates), np.nan), ValueError, "found nan for slate 0"),
        (lambda batch, slates: "many", ValueError, "found str"),
    ]
    for reward, kind, said in cases:
        with pytest.raises(kind, match=said) as raised:
            policy(reward=reward).fit(frame, **NAMES)
        if reward is broken:
            assert any("broken" in str(entry) for entry in raised.traceback)


def test_a_run_wants_its_reward_again(frame: pl.DataFrame, tmp_path: Path) -> None:
    run = tmp_path / "run"
    policy(reward=discounted).fit(frame, run_dir=run, **NAMES)
    assert SlatePolicy.load(run).reward is None
    with pytest.raises(ValueError, match="trained for `discounted`"):
        SlatePolicy.load(run).evaluate()
    assert len(SlatePolicy.load(run, reward=discounted).evaluate()) == 2
    with pytest.raises(ValueError, match="reward: `discounted` of a program"):
        policy().fit(run_dir=run, resume=True)


def test_an_interrupt_keeps_the_run_and_resuming_ends_the_same(
    frame: pl.DataFrame, tmp_path: Path
) -> None:
    settings = {"evaluation.count": 1}
    policy(settings=settings, steps=2000).fit(frame, run_dir=tmp_path / "whole", **NAMES)
    before = signal.getsignal(signal.SIGINT)

    def interrupt(message: dict[str, Any]) -> None:
        if message["kind"] == "step" and message["step"] > 10:
            _thread.interrupt_main()

    for run_dir in (tmp_path / "cut", None):
        with pytest.raises(KeyboardInterrupt) as raised:
            own = policy(settings=settings, steps=2000)
            own.fit(frame, callback=interrupt, run_dir=run_dir, **NAMES)
        assert signal.getsignal(signal.SIGINT) is before
        [note] = raised.value.__notes__
        kept = Path(note.split("run_dir='")[1].split("'")[0])
        assert "resume=True" in note and (run_dir is None or kept == run_dir)
        policy(settings=settings, steps=2000).fit(run_dir=kept, resume=True)
        assert model(kept) == model(tmp_path / "whole")


def test_an_interrupt_within_a_reward_ends_after_the_step(frame: pl.DataFrame, tmp_path: Path) -> None:
    calls = 0

    def interrupting(batch: Batch, slates: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 30:
            _thread.interrupt_main()
        return discounted(batch, slates)

    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        policy(reward=interrupting, steps=2000).fit(frame, run_dir=run, **NAMES)
    steps = [int(path.name.split("-")[1]) for path in (run / "checkpoints").iterdir()]
    assert 0 < max(steps) < 200
    policy(reward=interrupting, steps=2000).fit(run_dir=run, resume=True)


def test_an_interrupt_within_a_reward_ends_an_evaluation_at_once(frame: pl.DataFrame) -> None:
    calls = at = 0

    def interrupted(batch: Batch, slates: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return discounted(batch, slates)

    own = policy(reward=interrupted).fit(frame, **NAMES)
    expected = own.evaluate().to_dict()
    at = calls + 1
    with pytest.raises(KeyboardInterrupt):
        own.evaluate(against=["popularity"])
    assert calls == at
    assert own.evaluate().to_dict() == expected


def test_an_interrupt_ends_the_fits_that_a_training_begins_with(
    frame: pl.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    class Interrupting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "fitting embeddings without fold" in record.getMessage():
                told.append(record.getMessage())
                raise KeyboardInterrupt

    logger, handler = logging.getLogger("fast_slate"), Interrupting()
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, logger="fast_slate"):
            with pytest.raises(KeyboardInterrupt) as raised:
                own = policy(settings={"context.folds": 5})
                own.fit(frame, run_dir=tmp_path / "run", **NAMES)
    finally:
        logger.removeHandler(handler)
    assert len(told) == 1 and not (tmp_path / "run" / "run.toml").exists()
    [note] = raised.value.__notes__
    assert "the prepared data is in" in note
    trainer().fit(tmp_path / "run" / "data", run_dir=tmp_path / "again")


@pytest.mark.parametrize("task", ["prepare", "evaluate"])
def test_an_interrupt_ends_long_work_between_its_pieces(
    fitted: SlatePolicy, tmp_path: Path, task: str
) -> None:
    drawn = np.random.default_rng(0).integers([[3000], [2000]], size=(2, 200_000))
    large = pl.DataFrame({"user_id": drawn[0], "item_id": drawn[1]})

    def long() -> None:
        if task == "evaluate":
            fitted.evaluate(against=["als"], tune=120)
        else:
            settings = {"prepare.min_user_interactions": 5, "prepare.within": 120}
            prepare(large, tmp_path / "data", settings=settings, **NAMES)

    timer, began = threading.Timer(0.7, _thread.interrupt_main), time.monotonic()
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            long()
    finally:
        timer.cancel()
    assert 0.7 <= time.monotonic() - began < 60
    assert not (tmp_path / "data").exists()
    fitted.evaluate()


def test_what_cannot_be_is_refused_before_anything_is_read() -> None:
    with pytest.raises(RuntimeError, match="device `tpu`"):
        policy(device="tpu").fit("nowhere.csv")
    with pytest.raises(ValueError, match="callback: expected a function, found 3"):
        policy().fit("nowhere.csv", callback=3)
    with pytest.raises(ValueError, match="shards: expected a fast_slate.ray.ShardedRetriever"):
        policy().fit("nowhere.csv", shards=3)


def test_of_two_fits_into_one_folder_the_first_goes_on(frame: pl.DataFrame, tmp_path: Path) -> None:
    run, refused = tmp_path / "run", 0

    def second(message: dict[str, Any]) -> None:
        nonlocal refused
        with pytest.raises(RuntimeError, match="another process is training here") as raised:
            policy().fit(run_dir=run, resume=True)
        assert not hasattr(raised.value, "__notes__")
        refused += 1

    # Also while the first one prepares, when there is no run yet.
    lock = _native.Lock(str(run))
    with pytest.raises(RuntimeError, match="another process is training here"):
        policy().fit(frame, run_dir=run, **NAMES)
    lock.release()
    assert not run.exists()
    policy().fit(frame, run_dir=run, callback=second, **NAMES)
    assert refused > 1 and SlatePolicy.load(run).history_["step"][-1] == 20


def test_a_fit_on_what_a_policy_has_made_keeps_it(frame: pl.DataFrame) -> None:
    own = policy().fit(frame, **NAMES)
    first = Path(own.run_dir_)
    own.fit(run_dir=first, resume=True)
    assert own.plot() is not None and first.exists()
    again = trainer()
    again.fit(frame_of := first / "data")
    own.settings = again.settings
    own.embeddings = "auto"
    own.fit(frame_of)
    second = Path(own.run_dir_)
    assert SlatePolicy.load(second).evaluate().to_dict() == again.evaluate().to_dict()
    del own
    assert not first.exists() and not second.exists()


def test_a_reward_knows_the_items_by_their_ids(frame: pl.DataFrame) -> None:
    def of_item(batch: Batch, slates: np.ndarray) -> np.ndarray:
        seen.append(batch.item_ids)
        return (batch.item_ids[slates] % 7).mean(axis=1)

    seen: list[np.ndarray] = []
    own = policy(reward=of_item)
    for table in (frame, frame.filter(pl.col("item_id") > 20)):
        seen.clear()
        own.fit(table, **NAMES)
        np.testing.assert_array_equal(seen[-1], own.item_ids_)
        # The run and what is fitted again number items each for themselves.
        assert len({id(ids) for ids in seen}) == 2


def test_a_fit_answers_with_what_everybody_taught(frame: pl.DataFrame, tmp_path: Path) -> None:
    own = policy().fit(frame, run_dir=tmp_path / "run", **NAMES)
    users = own.user_ids_[:20]
    judged, everybody = (SlatePolicy.load(tmp_path / "run" / name) for name in (".", "all"))
    assert own.recommend(users).to_dict() == everybody.recommend(users).to_dict()
    assert own.recommend(users).to_dict() != judged.recommend(users).to_dict()
    assert own.evaluate().to_dict() == judged.evaluate().to_dict()
    with pytest.raises(ValueError, match="everybody is trained on"):
        everybody.evaluate()
    shown = slate("refit", tmp_path / "run", "--out", tmp_path / "again")
    assert shown.returncode == 0, shown.stderr
    again = SlatePolicy.load(tmp_path / "again")
    assert again.recommend(users).to_dict() == own.recommend(users).to_dict()

    alone = policy(refit=False).fit(frame, **NAMES)
    assert alone.recommend(users).to_dict() == judged.recommend(users).to_dict()
    nobody = {"prepare.validation_share": 0, "prepare.test_share": 0}
    policy(settings=nobody).fit(frame, run_dir=tmp_path / "whole", **NAMES)
    assert not (tmp_path / "whole" / "all").exists()


def test_what_everybody_taught_follows_a_run_that_goes_on(frame: pl.DataFrame, tmp_path: Path) -> None:
    own = policy(preset="paper", settings={"method.samples": 16, "evaluation.count": 4})
    own.fit(frame, run_dir=tmp_path / "run", **NAMES)
    everybody = tmp_path / "run" / "all"
    before = tomllib.loads((everybody / "run.toml").read_text())["run"]["refit"]
    (tmp_path / "run").rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    own.fit(moved / "data", run_dir=moved, resume=True)
    everybody = moved / "all"
    assert tomllib.loads((everybody / "run.toml").read_text())["run"]["refit"] == before
    own.set_params(steps=40).fit(moved / "data", run_dir=moved, resume=True)
    after = tomllib.loads((everybody / "run.toml").read_text())["run"]["refit"]
    assert before["step"] > 0 and after != before
    users = own.user_ids_[:20]
    shown = SlatePolicy.load(everybody).recommend(users)
    assert own.recommend(users).to_dict() == shown.to_dict()

    (tmp_path / "runs" / "all").mkdir(parents=True)
    with pytest.raises(ValueError, match="run_dir: .*all is there already.*refit=False"):
        policy().fit(frame, run_dir=tmp_path / "runs", **NAMES)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["all"]


def test_what_was_chosen_before_is_fitted_to_more(frame: pl.DataFrame, tmp_path: Path) -> None:
    judged = {"prepare.within": 1, "prepare.min_user_interactions": 5, "reward.kind": "dcg"}
    first = prepare(frame.head(6000), tmp_path / "first", slate_size=3, settings=judged, **NAMES)
    least = {"prepare.min_user_interactions": 5}
    again = prepare(frame, tmp_path / "again", embeddings=tmp_path / "first", settings=least, **NAMES)
    assert again["choice"] == first["choice"]
    assert again["statistics"] != first["statistics"]
    run = train(tmp_path / "again", tmp_path / "run", steps=5, settings={"evaluation.count": 1})
    assert SlatePolicy.load(run.run_dir_).reward == "dcg"
    with pytest.raises(ValueError, match="reward: goes with embeddings="):
        prepare(frame, tmp_path / "no", embeddings=tmp_path / "first", reward="hits", **NAMES)
    with pytest.raises(ValueError, match="no prepared folder"):
        prepare(frame, tmp_path / "no", embeddings=tmp_path, **NAMES)


def test_a_callback_that_raises_ends_the_run(frame: pl.DataFrame) -> None:
    def stop(message: dict[str, Any]) -> None:
        raise StopAsyncIteration("enough")

    with pytest.raises(StopAsyncIteration, match="enough"):
        policy().fit(frame, callback=stop, **NAMES)


def test_nothing_outlives_a_fit(frame: pl.DataFrame, caplog: pytest.LogCaptureFixture) -> None:
    threads, handlers = threading.active_count(), list(logging.getLogger().handlers)
    messages: list[dict[str, Any]] = []
    with caplog.at_level(logging.INFO, logger="fast_slate"):
        own = policy().fit(frame, callback=messages.append, **NAMES)
    assert any("device" in record.message for record in caplog.records)
    assert [row["step"] for row in messages if row["kind"] == "evaluation"][-1] == 20
    assert threading.active_count() <= threads + 1  # tqdm's monitor
    assert list(logging.getLogger().handlers) == handlers
    folder = Path(own.run_dir_)
    assert folder.exists()
    del own
    assert not folder.exists()
