"""What a policy answers, and scikit-learn's manners."""

import pickle
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from common import NAMES, policy, python, slate
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from fast_slate import Recommender, SlatePolicy, _command, _native, compare, train, tune


def test_slates_are_tables_for_everybody(fitted: SlatePolicy, frame: pl.DataFrame) -> None:
    users = fitted.user_ids_[:7].tolist()
    table = fitted.recommend(users, k=4)
    assert table.columns[:4] == ["user", "rank", "item_id", "score"] and len(table) == 28
    polars = pl.DataFrame(table)
    assert polars["user"].to_list() == [user for user in users for _ in range(4)]
    assert polars["user"].dtype == pl.Int64 and polars["score"].dtype == pl.Float32
    assert pa.table(table).num_rows == 28
    pd.testing.assert_frame_equal(pd.DataFrame(table), table.to_pandas())
    assert list(table)[27] == polars.row(27, named=True) and dict(table) == table.to_dict()
    assert "user" in table and "age" not in table
    assert polars["rank"].to_list() == [1, 2, 3, 4] * 7
    seen = set(frame.filter(pl.col("user_id") == users[0])["item_id"].to_list())
    assert not seen & set(polars["item_id"][:4].to_list())
    assert "<table>" in table._repr_html_() and "item_id" in repr(table)
    assert table["rank"][:2] == [1, 2]


def test_slates_are_what_numpy_finds(fitted: SlatePolicy) -> None:
    users = fitted.user_ids_[:5]
    h = fitted.query(users)
    assert h.shape == (5, fitted.embeddings_.shape[1])
    scores = h @ fitted.embeddings_.T
    best = fitted.item_ids_[np.argmax(scores, axis=1)]
    table = fitted.recommend(users, k=1, exclude_seen=False)
    np.testing.assert_array_equal(table["item_id"], best)
    np.testing.assert_allclose(table["score"], scores.max(axis=1), rtol=1e-5)
    with pytest.raises(ValueError, match="read-only"):
        fitted.embeddings_[0, 0] = 1.0


def test_filters_and_strangers(fitted: SlatePolicy) -> None:
    first = fitted.recommend(items=[[], fitted.item_ids_[:3].tolist()])
    assert len(first) == 10 and set(first["user"]) == {0, 1}
    best = first["item_id"][0]
    assert best not in fitted.recommend(items=[[]], exclude=[best])["item_id"]
    few = fitted.item_ids_[10:14]
    assert set(fitted.recommend(items=[[]], k=4, candidates=few)["item_id"]) == set(few.tolist())
    one = fitted.recommend(fitted.user_ids_[0])
    assert one["item_id"] == fitted.recommend([int(fitted.user_ids_[0])])["item_id"]
    with pytest.raises(ValueError, match="items: expected a list"):
        fitted.recommend(items="i1")
    with pytest.raises(KeyError, match="users: no user `nobody`"):
        fitted.recommend(["nobody"])
    with pytest.raises(ValueError, match="users: give one"):
        fitted.recommend()
    with pytest.raises(ValueError, match="^k: a slate of 1000 .* lower k=$"):
        fitted.recommend(items=[[]], k=1000)
    with pytest.raises(ValueError, match="^candidates: the catalogue has no item"):
        fitted.recommend(items=[[]], candidates=["none"])
    for wrong in (-1, 0, 2.5, 2**63):
        with pytest.raises(ValueError, match=f"k: expected a whole number .* found {wrong}"):
            fitted.recommend(items=[[]], k=wrong)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="ignored `none`"):
        fitted.recommend(items=[["none"]])


def test_what_is_missing_is_no_list_and_no_item(fitted: SlatePolicy) -> None:
    one = fitted.item_ids_[:3].tolist()
    for nobody in (None, np.nan, pd.NA):
        found = fitted.recommend(items=pd.Series([one, nobody]))
        assert found.to_dict() == fitted.recommend(items=[one, []]).to_dict()
        with pytest.raises(ValueError, match="^items: expected integers or texts, found"):
            fitted.recommend(items=[*one, nobody])
    with pytest.raises(ValueError, match="^items: expected integers or texts, found"):
        fitted.recommend(items=[one, 5])
    for argument in ("users", "exclude", "candidates"):
        asked = {"items": None if argument == "users" else [one], argument: 5.5}
        with pytest.raises(ValueError, match=f"^{argument}: expected integers or texts, found 5.5"):
            fitted.recommend(**asked)


def test_an_interrupted_search_in_shards_raises_it_once(fitted: SlatePolicy, tmp_path: Path) -> None:
    fitted.save(tmp_path / "bundle")
    native = _native.Recommender.open(str(tmp_path / "bundle"), None)

    class One:
        """A shard with the whole catalogue."""

        vectors, whole, interrupts = native.vectors(), native.whole(), 0

        def __call__(
            self, latent: object, k: int, starts: object, excluded: object, *, exact: bool = False
        ) -> list[tuple[np.ndarray, ...]]:
            if self.interrupts:
                self.interrupts -= 1
                raise KeyboardInterrupt
            asked = [np.asarray(of) for of in (latent, starts, excluded)]
            found = native.search(asked[0], k, asked[1], asked[2], exact=exact)
            return [tuple(np.asarray(of) for of in found)]

    shards, users = One(), fitted.user_ids_[:5]
    answers = Recommender(tmp_path / "bundle", shards=shards)
    expected = fitted.recommend(users).to_dict()
    assert answers.recommend(users).to_dict() == expected
    shards.interrupts = 1
    with pytest.raises(KeyboardInterrupt):
        answers.recommend(users)
    with pytest.raises(KeyError, match="users: no user `nobody`"):
        answers.recommend(["nobody"])
    assert answers.recommend(users).to_dict() == expected


def test_samples_hold_what_a_log_needs(fitted: SlatePolicy) -> None:
    users = fitted.user_ids_[:3]
    sample = fitted.sample(users, draws=4, seed=7)
    assert len(sample.slates) == 3 * 4 * 5
    assert sample.h.shape == sample.z.shape == (12, fitted.embeddings_.shape[1])
    assert (sample.sigma > 0).all() and not np.allclose(sample.h, sample.z)
    np.testing.assert_array_equal(sample.h[0], sample.h[3])
    assert sample.slates["draw"][::5] == [0, 1, 2, 3] * 3
    again = fitted.sample(users, draws=4, seed=7)
    np.testing.assert_array_equal(sample.z, again.z)

    # Nothing is left for the first person, so the rows are the second's.
    few = fitted.item_ids_[:2].tolist()
    sample = fitted.sample(items=[few, few[:1]], candidates=few, draws=2, seed=7)
    assert sample.slates["user"] == [1, 1] and sample.slates["draw"] == [0, 1]
    assert sample.slates["item_id"] == [few[1]] * 2


def test_evaluation_beside_baselines(fitted: SlatePolicy) -> None:
    table = fitted.evaluate(against=["popularity", "ease"], metrics=["recall@20"])
    assert table["name"] == ["policy", "its step 0", "popularity", "ease"]
    assert all(0 <= value <= 1 for value in table["recall@20"])
    assert table["difference"][0] is None and table["low"][2] <= table["difference"][2]
    assert table["note"][2:] == [None, "not tuned"]
    assert pl.DataFrame(table).height == 4
    often = fitted.evaluate(against=["popularity"], halves=9)
    assert often["reward_se"][0] < table["reward_se"][0]
    assert often["reward_se"][2] < table["reward_se"][2]
    with pytest.raises(ValueError, match="halves: expected a whole number"):
        fitted.evaluate(halves=0)
    with pytest.raises(ValueError, match="against"):
        fitted.evaluate(against="a run that is not there")
    with pytest.raises(ValueError, match="split: expected"):
        fitted.evaluate(split="all")
    assert fitted.plot()._repr_svg_().startswith("<svg")
    assert {"step", "reward", "split"} <= set(fitted.history_.columns)


def test_scikit_learns_manners(fitted: SlatePolicy) -> None:
    own = policy(slate_size=3, settings={"method.sigma": "relative(0.5)"})
    other = clone(own)
    assert other.get_params() == own.get_params() and other.settings == own.settings
    assert other.get_params()["method__sigma"] == "relative(0.5)"
    other.set_params(method__sigma=0.5, steps=3)
    assert other.settings["method.sigma"] == 0.5 and other.steps == 3
    assert own.settings["method.sigma"] == "relative(0.5)"
    assert "slate_size=3" in repr(own) and "preset" not in repr(own)
    with pytest.raises(ValueError, match="no parameter `slates`"):
        own.set_params(slates=3)
    with pytest.raises(ValueError, match="not fitted"):
        own.recommend([1])
    assert not hasattr(clone(fitted), "history_") and not hasattr(clone(fitted), "item_ids_")
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError):
        check_is_fitted(own)
    assert "SlatePolicy" in make_pipeline(own)._repr_html_()


def test_pickles_are_bundles(fitted: SlatePolicy, frame: pl.DataFrame, tmp_path: Path) -> None:
    users = fitted.user_ids_[:9]
    for table in (fitted.recommend(users), fitted.evaluate(), fitted.history_):
        same = pickle.loads(pickle.dumps(table))
        assert same.to_dict() == table.to_dict()
        assert pa.table(same).schema == pa.table(table).schema
    dotted = policy(settings={"method.sigma": "relative(0.5)"}).fit(frame, **NAMES)
    again = pickle.loads(pickle.dumps(dotted))
    assert again.settings == dotted.settings
    assert again.recommend(users).to_dict() == dotted.recommend(users).to_dict()
    with pytest.raises(ValueError, match="came from a bundle or a pickle"):
        again.evaluate()
    dotted.save(tmp_path / "bundle")
    opened = pickle.loads(pickle.dumps(SlatePolicy.load(tmp_path / "bundle")))
    assert opened.recommend(users).to_dict() == dotted.recommend(users).to_dict()
    with pytest.raises(ValueError, match="checkpoint: .* is a bundle"):
        SlatePolicy.load(tmp_path / "bundle", checkpoint=5)
    some = users[:4].tolist()
    answers = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(answer)(fitted, user) for user in some
    )
    assert answers == [fitted.recommend([user])["item_id"] for user in some]


def answer(fitted: SlatePolicy, user: int) -> list[int]:
    return fitted.recommend([user])["item_id"]


def test_bundles_and_runs_are_the_commands(
    fitted: SlatePolicy, frame: pl.DataFrame, tmp_path: Path
) -> None:
    bundle, user = tmp_path / "bundle", int(fitted.user_ids_[0])
    fitted.save(bundle)
    with pytest.raises(ValueError, match="already"):
        fitted.save(bundle)
    fitted.save(bundle, overwrite=True)
    shown = slate("recommend", bundle, "--user", user, "--json")
    assert shown.returncode == 0, shown.stderr
    loaded = SlatePolicy.load(bundle)
    expected = fitted.recommend([user]).to_dict()
    assert loaded.recommend([user]).to_dict() == expected
    assert all(f'"item_id":"{item}"' in shown.stdout for item in expected["item_id"])

    worker = pickle.loads(pickle.dumps(Recommender(bundle, k=2)))
    with pytest.raises(ValueError, match="batch: expected as many user_id as items, found 2 and 1"):
        worker({"user_id": [user, user], "items": [None]})
    batch = pa.record_batch({"user_id": fitted.user_ids_[:3]})
    assert len(worker(batch)) == 6
    assert len(worker(pl.DataFrame({"user_id": fitted.user_ids_[:3]}))) == 6
    assert worker({"items": [[1], [2, 3]]})["rank"] == [1, 2, 1, 2]
    # Users who are known, and somebody new with an id of their own.
    mixed = worker({"user_id": [user, "new", "other"], "items": [None, [1], np.nan]})
    assert mixed["user"] == [str(user)] * 2 + ["new"] * 2 + ["other"] * 2
    assert mixed["item_id"][:2] == expected["item_id"][:2]
    assert mixed["item_id"][2:4] == worker({"items": [[1]]})["item_id"]
    assert mixed["item_id"][4:] == worker({"items": [[]]})["item_id"]

    run = tmp_path / "run"
    kept = policy().fit(frame, run_dir=run, **NAMES)
    with pytest.raises(ValueError, match="run_dir: .* holds a run already"):
        policy().fit(frame.head(10), run_dir=run, **NAMES)
    judged = slate("evaluate", run, "--against", "popularity", "--json")
    assert judged.returncode == 0, judged.stderr
    assert SlatePolicy.load(run).evaluate().to_dict() == kept.evaluate().to_dict()
    again = train(
        run / "data",
        tmp_path / "other",
        steps=20,
        refit=True,
        settings={key: value for key, value in kept.settings.items() if not key.startswith("prepare.")},
    )
    assert again.recommend([user]).to_dict() == kept.recommend([user]).to_dict()
    with pytest.raises(FileNotFoundError):
        SlatePolicy.load(tmp_path / "nothing")


def test_searches_and_comparisons(fitted: SlatePolicy, tmp_path: Path) -> None:
    data, over = Path(fitted.run_dir_) / "data", "method.samples=4|8"
    found = tune(data, tmp_path / "tuned", within=3, trials=2, over=over)
    assert found["trials"] and not found["interrupted"]
    grid = tmp_path / "grid.toml"
    grid.write_text(
        'title = "One"\npreset = "paper"\nmethods = ["lgp"]\nsamples = [2]\nslate_sizes = [3]\n'
        'seeds = [0]\nequal = "iterations"\nbudget = "5 steps"\nevaluations = 1\n'
        'figures = ["final-reward"]\n[[data]]\nname = "small"\n'
        "synth = { users = 400, actions = 300, density = 0.1, ceiling-users = 50 }\n"
        'prepare = { preset = "paper", no-index = true, latent-dim = 8 }\n'
    )
    report = compare(grid, tmp_path / "compared")
    assert [cell["outcome"]["steps"] for cell in report["cells"]] == [5]
    with pytest.raises(RuntimeError, match="slate compare"):
        compare(tmp_path / "none.toml", tmp_path / "nothing")


def test_the_method_of_a_search_is_set_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fast_slate._commands._slate", lambda words: {"words": words})
    settings = {"method.samples": 4, "method.kind": "pl-pg"}
    words = tune("data", "out", settings=settings)["words"]
    assert words[-4:] == ["--set", "method.kind=pl-pg", "--set", "method.samples=4"]


def test_the_command_is_found_where_pip_puts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name, of="here": str(tmp_path / of))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match=f"slate: .* {tmp_path}/here or {tmp_path}/.*user"):
        tune("data", "out")
    script = tmp_path / "posix_user" / "slate"
    script.parent.mkdir()
    script.touch(0o755)
    monkeypatch.setattr("sysconfig.get_preferred_scheme", lambda of: f"posix_{of}")
    assert _command.program() == str(script)


def test_the_command(tmp_path: Path) -> None:
    assert slate("--version").stdout.startswith("slate ")
    wrong = slate("train", "--data", tmp_path / "none", "--out", tmp_path / "run")
    assert wrong.returncode == 2 and "\nerror: " in wrong.stderr
    assert slate("frobnicate").returncode == 2


def test_a_forked_child_is_refused_at_once(fitted: SlatePolicy, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    fitted.save(bundle)
    code = f"""
import os
from fast_slate import Recommender
mine = Recommender({str(bundle)!r})
user = mine.user_ids_[0]
mine.recommend([user])
child = os.fork()
if child == 0:
    try:
        mine.recommend([user])
    except RuntimeError as error:
        print(error, flush=True)
        os._exit(3)
    os._exit(0)
# A pool tells it to whoever asked, too.
import multiprocessing
with multiprocessing.get_context("fork").Pool(1) as pool:
    try:
        pool.apply_async(mine, [{{"user_id": [user]}}]).get(timeout=30)
    except RuntimeError as error:
        assert "spawn" in str(error)
        print("told", flush=True)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = python(code, timeout=60)
    assert 'set_start_method("spawn")' in done.stdout and done.stdout.endswith("told\n3\n"), done
    spawned = f"""
import multiprocessing
from fast_slate import Recommender
def main():
    mine = Recommender({str(bundle)!r})
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(len(pool.map(mine, [{{"user_id": mine.user_ids_[:2].tolist()}}])[0]))
if __name__ == "__main__":
    main()
"""
    script = tmp_path / "spawned.py"
    script.write_text(spawned)
    done = python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    assert done.stdout == "10\n", done
