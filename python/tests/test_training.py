"""Rewards in Python, interrupts, and going on."""

import _thread
import logging
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from common import NAMES, model, policy

from fast_slate import Batch, SlatePolicy


def discounted(batch: Batch, slates: np.ndarray) -> np.ndarray:
    """The built-in reward of this name."""
    return batch.hits @ (0.5 ** np.arange(slates.shape[1], dtype=np.float32))


@pytest.mark.parametrize("method", ["lgp-mips", "pl-pg", "covariance"])
def test_the_same_reward_trains_the_same_parameters(
    frame: pl.DataFrame, tmp_path: Path, method: str
) -> None:
    settings = {"method.kind": method, "method.samples": 4}
    own = policy(settings=settings).fit(frame, run_dir=tmp_path / "built-in", **NAMES)
    mine = policy(settings=settings, reward=discounted, steps=20)
    mine.fit(tmp_path / "built-in" / "data", run_dir=tmp_path / "own")
    assert model(tmp_path / "own") == model(tmp_path / "built-in")
    assert mine.evaluate().to_dict() == own.evaluate().to_dict()
    assert mine.history_.to_dict()["reward"] == own.history_.to_dict()["reward"]


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

    policy(reward=watching, steps=40).fit(frame, **NAMES)
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
