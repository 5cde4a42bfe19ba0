"""Every form of the same interactions gives the same policy, and bad input one clear exception."""

import tomllib
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from common import NAMES, model, policy, python, slate

from fast_slate import SlatePolicy, prepare

FILES = ("contexts.parquet", "sessions.parquet", "actions.parquet", "embeddings.safetensors")


def content(run: Path) -> dict[str, bytes]:
    """The files of a prepared folder that say what is in it, not what it was made from."""
    data = run / "data"
    names = sorted(file.name for file in data.iterdir() if file.is_file())
    return {name: (data / name).read_bytes() for name in names if name != "prepare.toml"}


def test_every_form_gives_the_same_policy_as_the_command(
    log: Path, frame: pl.DataFrame, tmp_path: Path
) -> None:
    size = frame.max().row(0)
    users, items = (frame[name].to_numpy() for name in ("user_id", "item_id"))
    shape = (size[0] + 1, size[1] + 1)
    forms = {
        "polars": frame,
        "pandas": frame.to_pandas(),
        "numbered categories": frame.to_pandas().astype("category"),
        "categories": frame.cast(pl.String).cast(pl.Categorical),
        "pyarrow": pa.table({name: frame[name].to_arrow() for name in frame.columns}),
        "csr": sp.csr_matrix((np.ones(len(users)), (users, items)), shape=shape),
        "csv": log,
    }
    models = {}
    for name, form in forms.items():
        names = {} if name == "csr" else NAMES
        run = tmp_path / name
        policy().fit(form, run_dir=run, **names)
        models[name] = model(run)
        assert content(run) == content(tmp_path / "polars"), name
    flags = ["--user-column", "user_id", "--item-column", "item_id", "--embeddings", "svd"]
    flags += ["--latent-dim", 16, "--min-user-interactions", 5]
    data, run = tmp_path / "shell" / "data", tmp_path / "shell"
    run.mkdir()
    made = slate("prepare", log, "--out", data, *flags)
    assert made.returncode == 0, made.stderr
    sets = ["method.samples=8", "evaluation.count=2", "context.folds=2"]
    sets = [word for one in sets for word in ("--set", one)]
    made = slate("train", "--data", data, "--out", run, "--steps", 20, *sets)
    assert made.returncode == 0, made.stderr
    assert content(run) == content(tmp_path / "polars")
    models["shell"] = model(run)
    assert len(set(models.values())) == 1 and len(models["shell"]) > 0


def test_text_ids_times_and_chunks(frame: pl.DataFrame, tmp_path: Path) -> None:
    texts = frame.with_columns(
        pl.format("u{}", "user_id").alias("user_id"),
        pl.format("i-{}", "item_id").alias("item_id"),
        when=pl.lit(1_700_000_000) + pl.int_range(pl.len()),
    )
    csv = tmp_path / "log.csv"
    texts.write_csv(csv)
    stamped = texts.with_columns(pl.from_epoch("when"))
    zoned = stamped.to_pandas()
    zoned["when"] = zoned["when"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    chunks = pl.concat([texts[:1000], texts[1000:]], rechunk=False)
    settings = {"prepare.split": "temporal", "prepare.min_user_interactions": 5}
    # The footer and the pages of a Parquet file are checked before polars reads it, whoever wrote it.
    files = {"polars": tmp_path / "polars.parquet"}
    texts.write_parquet(files["polars"])
    for pages, compression in (("1.0", "snappy"), ("2.0", "zstd"), ("2.0", "gzip"), ("1.0", "none")):
        files[compression] = tmp_path / f"{compression}.parquet"
        pq.write_table(
            texts.to_arrow(),
            files[compression],
            compression=compression,
            data_page_version=pages,
            use_dictionary=pages == "1.0",
            row_group_size=700,
        )
    made = {}
    forms = {"csv": csv, "chunks": chunks, "dates": stamped, "zones": zoned, **files}
    for name, form in forms.items():
        out = tmp_path / name
        prepare(form, out, time="when", embeddings="svd", settings=settings, **NAMES)
        made[name] = {
            file.name: file.read_bytes() for file in out.iterdir() if file.name.endswith("parquet")
        }
    assert all(made[name] == made["csv"] for name in forms)


@pytest.mark.parametrize(
    ("flags", "settings", "arguments"),
    [
        ("--embeddings als --latent-dim 8 --iterations 2 --confidence 3 --regularization 2",
         {"latent_dim": 8, "iterations": 2, "confidence": 3.0, "regularization": 2.0},
         {"embeddings": "als"}),
        ("--embeddings svd --latent-dim 8 --normalization 0.5 --observed-only --seed 3",
         {"latent_dim": 8, "normalization": 0.5, "observed_only": True},
         {"embeddings": "svd", "seed": 3}),
        ("--latent-dim 8 --split temporal --time-column when", {"latent_dim": 8, "split": "temporal"},
         {"embeddings": "svd", "time": "when"}),
        ("--latent-dim 8 --time-column when --test-after 2023-11-15 --observed-share 0.6",
         {"latent_dim": 8, "test_after": "2023-11-15", "observed_share": 0.6},
         {"embeddings": "svd", "time": "when"}),
        ("--latent-dim 8 --rating-column rating --min-rating 3 --min-item-interactions 4 "
         "--validation-share 0.2 --test-share 0.3 --rows all",
         {"latent_dim": 8, "min_rating": 3.0, "min_item_interactions": 4, "rows": "all",
          "validation_share": 0.2, "test_share": 0.3},
         {"embeddings": "svd", "weight": "rating"}),
        ("--preset paper --latent-dim 8", {"latent_dim": 8}, {"preset": "paper"}),
    ],
)  # fmt: skip
def test_a_preparation_is_that_of_the_command(
    frame: pl.DataFrame,
    tmp_path: Path,
    flags: str,
    settings: dict[str, object],
    arguments: dict[str, object],
) -> None:
    when = 1_700_000_000 + (pl.int_range(pl.len()) * 37) % 200_000
    table = frame.with_columns(rating=pl.col("item_id") % 5 + 1, when=when)
    log = tmp_path / "log.csv"
    table.write_csv(log)
    least = ["--min-user-interactions", "5", "--user-column", "user_id", "--item-column", "item_id"]
    made = slate("prepare", log, "--out", tmp_path / "a", *least, *flags.split())
    assert made.returncode == 0, made.stderr
    own = {f"prepare.{key}": value for key, value in settings.items()}
    own["prepare.min_user_interactions"] = 5
    about = prepare(table, tmp_path / "b", settings=own, **arguments, **NAMES)
    theirs = tomllib.loads((tmp_path / "a" / "prepare.toml").read_text())
    assert about["files"] == theirs["files"]
    assert about.get("search") == theirs.get("search")


def test_weights_count_by_a_threshold(frame: pl.DataFrame, tmp_path: Path) -> None:
    rated = frame.with_columns(rating=(pl.col("item_id") % 5 + 1).cast(pl.Float32))
    settings = {"prepare.min_rating": 3.0, "prepare.min_user_interactions": 2}
    settings["prepare.latent_dim"] = 8
    made = prepare(rated, tmp_path / "a", weight="rating", embeddings="svd", settings=settings, **NAMES)
    pairs = rated.filter(pl.col("rating") >= 3).select("user_id", "item_id").unique()
    kept = pairs.filter(pl.len().over("user_id") >= 2)
    assert made["input"] == "interactions"
    assert pl.read_parquet(tmp_path / "a" / "actions.parquet").height == kept["item_id"].n_unique()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_weight_of_the_threshold_counts(frame: pl.DataFrame, tmp_path: Path, dtype: str) -> None:
    pairs = frame.unique(["user_id", "item_id"], maintain_order=True)
    users, items = (pairs[name].to_numpy() for name in ("user_id", "item_id"))
    stars = np.array([4.0, 4.1, 4.2], dtype)[items % 3]
    own = {"prepare.min_user_interactions": 5, "prepare.latent_dim": 8}
    kept = pairs.filter(pl.col("item_id") % 3 > 0)
    expected = prepare(kept, tmp_path / "kept", embeddings="svd", settings=own, **NAMES)["files"]
    own["prepare.min_rating"] = 4.1
    table = pairs.with_columns(stars=stars)
    made = prepare(table, tmp_path / "table", weight="stars", embeddings="svd", settings=own, **NAMES)
    assert made["files"] == expected
    matrix = sp.csr_matrix((stars, (users, items)))
    made = prepare(matrix, tmp_path / "matrix", embeddings="svd", settings=own)
    assert made["files"] == expected


def test_rows_are_chosen_in_memory_as_they_are_in_a_file(frame: pl.DataFrame, tmp_path: Path) -> None:
    counts = {"prepare.min_user_interactions": 5, "prepare.latent_dim": 8}
    events = frame.with_columns(
        event=pl.when(pl.col("item_id") % 3 > 0).then(pl.lit("buy")).otherwise(pl.lit("view")),
        tag=pl.lit("x"),
    )
    # GoodReads counts what was read, and has ratings.
    shelves = frame.select(
        "user_id",
        book_id="item_id",
        is_read=(pl.col("item_id") % 3 > 0).cast(pl.Int64),
        rating=pl.col("item_id") % 5 + 1,
        is_reviewed=pl.lit(0),
    )
    bought, liked = {"prepare.rows": "event=buy"}, {"prepare.min_rating": 3}
    was_read = pl.col("is_read") == 1
    for name, table, item, settings, kept in [
        ("bought", events, "item_id", bought, pl.col("event") == "buy"),
        ("read", shelves, "book_id", {}, was_read),
        ("liked", shelves, "book_id", liked, was_read & (pl.col("rating") >= 3)),
    ]:
        log = tmp_path / f"{name}.csv"
        table.write_csv(log)
        # A column of another type is in nobody's way.
        more = table.with_columns(kind=pl.duration(hours=1))
        own = {"user": "user_id", "item": item, "embeddings": "svd", "settings": counts | settings}
        of_file = prepare(log, tmp_path / f"{name}-file", **own)
        in_memory = prepare(more, tmp_path / f"{name}-memory", **own)
        assert in_memory["files"] == of_file["files"]
        left = table.filter(kept).unique(["user_id", item]).filter(pl.len().over("user_id") >= 5)
        items = pl.read_parquet(tmp_path / f"{name}-memory" / "actions.parquet")
        assert items.height == left[item].n_unique() < frame["item_id"].n_unique()
    with pytest.raises(KeyError, match=r"settings\['prepare.rows'\]: no column `kind`.*event"):
        prepare(events, tmp_path / "none", settings={"prepare.rows": "kind=buy"}, **NAMES)


def test_numbers_of_numpy_paths_and_days_are_settings(frame: pl.DataFrame, tmp_path: Path) -> None:
    table = frame.with_columns(when=1_700_000_000 + (pl.int_range(pl.len()) * 37) % 200_000)
    numbers = np.arange(1, 9)
    theirs = {
        "prepare.min_user_interactions": numbers[4],
        "prepare.latent_dim": numbers[7].astype(np.int32),
        "prepare.observed_share": np.float32(0.5),
        "prepare.observed_only": np.bool_(True),
        "prepare.test_after": date(2023, 11, 15),
    }
    plain = {
        "prepare.min_user_interactions": 5,
        "prepare.latent_dim": 8,
        "prepare.observed_share": 0.5,
        "prepare.observed_only": True,
        "prepare.test_after": 1_700_006_400,
    }
    columns = {"time": "when", "embeddings": "svd", **NAMES}
    one = prepare(table, tmp_path / "one", seed=numbers[2], settings=theirs, **columns)
    other = prepare(table, Path(tmp_path / "other"), seed=3, settings=plain, **columns)
    assert one["files"] == other["files"]


def test_what_a_preparation_cannot_take_names_the_argument(frame: pl.DataFrame, tmp_path: Path) -> None:
    timed = frame.with_columns(when=1_700_000_000 + pl.int_range(pl.len()))
    for arguments, settings, said in [
        ({"reward": "clicks"}, {}, "reward: unknown variant `clicks`"),
        ({"preset": "best"}, {}, 'preset: expected "default" or "paper", found "best"'),
        ({"slate_size": "five"}, {}, "slate_size: invalid type"),
        ({}, {"test_after": "soon"}, "settings['prepare.test_after']: expected a day"),
        ({}, {"observed_share": float("nan")}, "settings['prepare.observed_share']: expected a number"),
        ({}, {"within": object()}, "settings['prepare.within']: expected a number"),
        ({}, {"rows": "buy"}, "settings['prepare.rows']: expected `COLUMN=VALUE`"),
        (
            {"embeddings": "als"},
            {"iterations": 0, "latent_dim": 8},
            "settings={'prepare.iterations': …}",
        ),
        (
            {"embeddings": "svd", "time": "when"},
            {"test_after": "2030-01-01", "latent_dim": 8},
            "settings={'prepare.test_after': …}",
        ),
    ]:
        own = {f"prepare.{key}": of for key, of in settings.items()}
        own["prepare.min_user_interactions"] = 5
        with pytest.raises(ValueError) as raised:
            prepare(timed, tmp_path / "data", settings=own, **arguments, **NAMES)
        assert said in str(raised.value) and "--" not in str(raised.value), (said, raised.value)
    encoders = {"context.encoders": ["weighted-mean", "features"], "context.folds": 0}
    with pytest.raises(ValueError, match="prepare it again with user_features="):
        policy(settings=encoders).fit(frame, **NAMES)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_beside_a_prepared_folder(
    frame: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Folders that happen to have the names of arguments are somebody else's.
    elsewhere = tmp_path / "elsewhere"
    for name in ("embeddings", "user_features"):
        (elsewhere / name).mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    mine = tmp_path / "item_embeddings.npy"
    mine.write_bytes(b"mine")
    items = frame["item_id"].unique().to_list()
    vectors = np.random.default_rng(0).normal(size=(len(items), 8))
    users = frame.select("user_id").unique().with_columns(age=pl.col("user_id") % 60)
    least = {"prepare.min_user_interactions": 5}
    own = {"item_embeddings": (items, vectors), "settings": least}
    prepare(frame, tmp_path / "frame", user_features=users, **own, **NAMES)
    # The columns of a matrix have no names, so that the ids of users are in `user`.
    pairs = (np.ones(len(frame)), (frame["user_id"].to_numpy(), frame["item_id"].to_numpy()))
    users = users.rename({"user_id": "user"})
    prepare(sp.csr_matrix(pairs), tmp_path / "matrix", user_features=users, **own)
    assert mine.read_bytes() == b"mine"
    expected = {"elsewhere", "frame", "matrix", "item_embeddings.npy"}
    assert {path.name for path in tmp_path.iterdir()} == expected
    one, other = (tmp_path / name / "features.safetensors" for name in ("frame", "matrix"))
    assert one.read_bytes() == other.read_bytes()


def test_an_index_of_pandas_is_no_feature(frame: pl.DataFrame, tmp_path: Path) -> None:
    users = frame.select("user_id").unique().sort("user_id").with_columns(age=pl.col("user_id") % 60)
    shuffled = users.to_pandas().sample(frac=1, random_state=0)
    own = {"embeddings": "svd", "settings": {"prepare.latent_dim": 8}, **NAMES}
    prepare(frame, tmp_path / "polars", user_features=users, **own)
    prepare(frame, tmp_path / "pandas", user_features=shuffled, **own)
    one, other = (tmp_path / name / "features.safetensors" for name in ("polars", "pandas"))
    assert one.read_bytes() == other.read_bytes()


def test_vectors_and_features_of_ones_own(frame: pl.DataFrame, tmp_path: Path) -> None:
    items = frame["item_id"].unique().to_list()
    vectors = np.random.default_rng(0).normal(size=(len(items), 8)).astype(np.float32)
    users = frame.select("user_id").unique().with_columns(age=pl.col("user_id") % 60)
    encoders = {"context.encoders": ["weighted-mean", "features"], "context.folds": 0}
    own = policy(embeddings="auto", settings=encoders)
    del own.settings["prepare.latent_dim"]  # the vectors have their own
    own.fit(frame, item_embeddings=(items, vectors), user_features=users, **NAMES)
    assert own.embeddings_.shape == (len(items), 8)
    place = items.index(own.item_ids_[3])
    np.testing.assert_allclose(own.embeddings_[3], vectors[place])
    # Blanks belong to an id.
    texts = frame.with_columns(pl.format(" {} ", "item_id").alias("item_id"))
    blank = policy(embeddings="auto", settings={"context.folds": 0})
    del blank.settings["prepare.latent_dim"]
    blank.fit(texts, item_embeddings=([f" {item} " for item in items], vectors), **NAMES)
    np.testing.assert_allclose(blank.embeddings_[3], vectors[items.index(int(blank.item_ids_[3]))])
    table = pl.DataFrame({"item_id": items, "vector": vectors.tolist()})
    other = policy(embeddings="auto", settings=encoders)
    del other.settings["prepare.latent_dim"]
    other.fit(frame, item_embeddings=table, user_features=users, **NAMES)
    np.testing.assert_array_equal(own.embeddings_, other.embeddings_)
    both = policy(settings=encoders)  # SVD and vectors of its own
    with pytest.raises(ValueError, match="item_embeddings: embeddings= names a source"):
        both.fit(frame, item_embeddings=table, run_dir=tmp_path / "deep/run", **NAMES)
    assert not (tmp_path / "deep").exists()


def test_bad_input_names_the_argument(frame: pl.DataFrame, tmp_path: Path) -> None:
    items = frame["item_id"].unique().to_list()
    nulls = frame.with_columns(pl.when(pl.col("user_id") > 3).then("user_id").alias("user_id"))
    cases = [
        (dict(interactions=frame, user="uesr", item="item_id"), KeyError, "user: no column `uesr`"),
        (dict(interactions=nulls, **NAMES), ValueError, "column `user_id`: expected an id"),
        (dict(interactions=frame.clear(), **NAMES), ValueError, "interactions: holds no rows"),
        (
            dict(interactions=frame.with_columns(pl.col("user_id") * 0.5), **NAMES),
            ValueError,
            "column `user_id`: expected integers or text, found f64",
        ),
        (
            dict(
                interactions=frame.with_columns(pl.duration(hours="item_id").alias("item_id")),
                **NAMES,
            ),
            ValueError,
            "column `item_id`: expected numbers, text",
        ),
        (dict(interactions=frame), ValueError, "user="),
        (
            dict(interactions=frame, item_embeddings=(items, np.ones((3, 4))), **NAMES),
            ValueError,
            "item_embeddings: expected an array",
        ),
        (
            dict(
                interactions=frame,
                item_embeddings=(items[1:], np.ones((len(items) - 1, 4))),
                **NAMES,
            ),
            ValueError,
            "item_embeddings",
        ),
        (
            dict(interactions=frame, item_embeddings=(["a\nb"], np.ones((1, 4))), **NAMES),
            ValueError,
            "item_embeddings: expected ids without line breaks, found 'a\\nb'",
        ),
        (dict(interactions=frame, user_features=[1, 2], **NAMES), ValueError, "user_features: "),
        (dict(interactions="nowhere.csv", **NAMES), FileNotFoundError, "nowhere.csv"),
        (dict(interactions=[1, 2], **NAMES), ValueError, "interactions: expected a table"),
        (dict(), ValueError, "interactions: expected"),
        (dict(resume=True), ValueError, "run_dir: "),
    ]
    for arguments, kind, said in cases:
        own = policy()
        if "item_embeddings" in arguments:
            own.embeddings = "auto"
            del own.settings["prepare.latent_dim"]
        with pytest.raises(kind) as raised:
            own.fit(**arguments)
        assert said in str(raised.value), (said, raised.value)
        assert "--" not in str(raised.value)


def test_a_column_that_is_not_there_is_named_beside_those_that_are(frame: pl.DataFrame) -> None:
    table = frame.to_arrow()
    for of in (frame, frame.to_pandas(), table, table.to_reader(), table.to_batches()[0]):
        with pytest.raises(KeyError) as raised:
            policy().fit(of, user="uesr", item="item_id")
        expected = "user: no column `uesr`; the columns are user_id, item_id"
        assert raised.value.args == (expected,), type(of)


def test_tables_of_vectors_and_users_are_read_or_refused_by_their_argument(frame: pl.DataFrame) -> None:
    items = frame["item_id"].unique().to_list()
    vectors = np.random.default_rng(0).normal(size=(len(items), 8)).astype(np.float32)
    encoders = {"context.encoders": ["weighted-mean", "features"], "context.folds": 0}

    def fit(users: pl.DataFrame, vectors: np.ndarray, **settings: object) -> SlatePolicy:
        own = policy(embeddings="auto", settings={**encoders, **settings})
        del own.settings["prepare.latent_dim"]
        table = pl.DataFrame({"item_id": items, "vector": vectors})  # an array of a fixed length
        assert isinstance(table["vector"].dtype, pl.Array)
        return own.fit(frame, item_embeddings=table, user_features=users, **NAMES)

    users = frame.select("user_id").unique().with_columns(age=pl.col("user_id") % 60)
    users = users.with_columns(city=pl.duration(hours=1))
    assert fit(users, vectors, **{"prepare.feature_columns": ["age"]}).embeddings_.shape[1] == 8
    with pytest.raises(ValueError, match="user_features: column `city`: expected numbers, text"):
        fit(users, vectors)
    with pytest.raises(ValueError, match="^user_features: row .* is in row .* already"):
        fit(pl.concat([users, users]).drop("city"), vectors)
    vectors[3, 2] = np.nan
    with pytest.raises(ValueError, match="^item_embeddings: "):
        fit(users.drop("city"), vectors)


def test_a_stream_may_need_python_while_it_is_read(frame: pl.DataFrame, tmp_path: Path) -> None:
    for at, part in enumerate(frame.iter_slices(200)):
        part.write_parquet(tmp_path / f"{at}.parquet")
    code = f"""
import fsspec, pyarrow.dataset, pyarrow.fs
from fast_slate import prepare
files = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fsspec.filesystem("file")))
reader = pyarrow.dataset.dataset({str(tmp_path)!r}, filesystem=files).scanner().to_reader()
settings = {{"prepare.min_user_interactions": 5, "prepare.latent_dim": 8}}
out = {str(tmp_path / "data")!r}
print(prepare(reader, out, user="user_id", item="item_id", embeddings="svd", settings=settings)["files"])
"""
    done = python(code, timeout=60)
    assert done.returncode == 0, done.stderr


def test_bad_settings_are_refused_before_anything_is_read() -> None:
    cases = [
        ({"settings": {"method.sample": 3}}, ["no setting `method.sample`", "method.samples"]),
        ({"settings": {"method.samples": "many"}}, ["`method.samples`"]),
        ({"settings": {"method.sigma": object()}}, ["method.sigma: expected a number"]),
        ({"reward": "clicks"}, ["`reward.kind`", "discounted"]),
        ({"reward": 3}, ["reward: expected a function"]),
        ({"preset": "best"}, ["preset: expected"]),
        ({"steps": 0}, ["steps: expected a whole number of at least 1, found 0"]),
        ({"steps": 1, "seconds": 1}, ["steps: give steps or seconds"]),
    ]
    for parameters, said in cases:
        with pytest.raises(ValueError) as raised:
            SlatePolicy(**parameters).fit("nowhere.csv")
        assert all(part in str(raised.value) for part in said), raised.value


def test_an_unknown_key_of_the_preparation_names_the_others(frame: pl.DataFrame) -> None:
    with pytest.raises(ValueError, match="unknown field `min_users`.*min_user_interactions"):
        SlatePolicy(settings={"prepare.min_users": 3}).fit(frame, **NAMES)


def test_a_key_that_the_preparation_has_no_use_for_is_refused(frame: pl.DataFrame) -> None:
    for key, value, said in [
        ("iterations", 3, 'prepare.iterations.*embeddings="als"'),
        ("feature_columns", ["age"], "prepare.feature_columns.*user_features"),
        ("validation_after", "2023-11-15", "prepare.validation_after.*test_after"),
    ]:
        with pytest.raises(ValueError, match=said):
            SlatePolicy(settings={f"prepare.{key}": value}).fit(frame, **NAMES)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"test_share": 0.3}, "prepare.test_share.*does not go with prepare.test_after"),
        (
            {"validation_after": "2023-11-14", "validation_share": 0.3},
            "prepare.validation_share.*does not go with prepare.validation_after",
        ),
        (
            {"validation_after": "2023-11-16"},
            "prepare.validation_after.*2023-11-16 has to be before prepare.test_after, 2023-11-15",
        ),
    ],
)
def test_of_two_keys_that_say_the_same_one_is_refused(
    frame: pl.DataFrame, keys: dict[str, object], said: str
) -> None:
    settings = {f"prepare.{key}": of for key, of in {"test_after": "2023-11-15", **keys}.items()}
    timed = frame.with_columns(when=1_700_000_000 + pl.int_range(pl.len()))
    with pytest.raises(ValueError, match=said):
        SlatePolicy(settings=settings).fit(timed, time="when", **NAMES)


def test_a_preparation_is_checked_before_a_stream_is_read(frame: pl.DataFrame, tmp_path: Path) -> None:
    items = frame["item_id"].unique().to_list()
    vectors = (items, np.ones((len(items), 4), np.float32))
    for given, keys, said in [
        ({"embeddings": "svd"}, {"iterations": 3}, "prepare.iterations"),
        ({"item_embeddings": vectors}, {"latent_dim": 3}, "prepare.latent_dim"),
        ({"embeddings": "svd", "item_embeddings": vectors}, {}, "embeddings= names a source"),
        ({}, {"split": "temporal"}, "time: a split by time"),
    ]:
        reader = frame.to_arrow().to_reader()
        settings = {f"prepare.{key}": of for key, of in keys.items()}
        with pytest.raises(ValueError, match=said):
            prepare(reader, tmp_path / "data", settings=settings, **given, **NAMES)
        assert reader.read_all().num_rows == len(frame)
    # What is said of tables in memory is taken.
    users = frame.select("user_id").unique().with_columns(age=pl.col("user_id") % 60, other=1)
    settings = {"prepare.feature_columns": ["age"], "prepare.missing_embeddings": "zero"}
    tables = {"item_embeddings": (items[1:], vectors[1][1:]), "user_features": users}
    prepare(frame.to_arrow().to_reader(), tmp_path / "data", settings=settings, **tables, **NAMES)


def test_a_key_without_the_prefix_is_not_ignored(frame: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="min_user_interactions"):
        prepare(frame, tmp_path / "data", settings={"min_user_interactions": 5}, **NAMES)


def test_what_somebody_else_put_there_stays(frame: pl.DataFrame, tmp_path: Path) -> None:
    beside = tmp_path / ".data.inputs"
    beside.mkdir()
    (beside / "notes.txt").write_text("mine")
    policy().fit(frame, run_dir=tmp_path, **NAMES)
    vectors = (["1", "2"], np.eye(2))
    with pytest.raises(ValueError, match="out: .*another preparation is at work"):
        prepare(frame, tmp_path / "data", item_embeddings=vectors, overwrite=True, **NAMES)
    assert (beside / "notes.txt").read_text() == "mine"
    # Nor is data that was prepared before taken for that of a new run.
    (tmp_path / "run").mkdir()
    (tmp_path / "data").rename(tmp_path / "run/data")
    with pytest.raises(ValueError, match="run_dir: .*data is there already"):
        policy().fit(frame.head(100), run_dir=tmp_path / "run", **NAMES)


def test_a_column_that_nobody_names_may_hold_anything(frame: pl.DataFrame, tmp_path: Path) -> None:
    messy = frame.to_pandas()
    messy["note"] = ["a", 2, None, *[{}] * (len(messy) - 3)]
    own = {"embeddings": "svd", "settings": {"prepare.latent_dim": 8}}
    made = prepare(messy, tmp_path / "pandas", **own, **NAMES)
    assert made["files"] == prepare(frame, tmp_path / "polars", **own, **NAMES)["files"]
    for names in ({}, {**NAMES, "weight": "note"}):
        with pytest.raises(ValueError, match="^interactions: .*note"):
            prepare(messy, tmp_path / "data", **own, **names)


def test_a_league_without_judges_names_arguments(frame: pl.DataFrame, tmp_path: Path) -> None:
    one = frame.filter(pl.col("user_id") == frame["user_id"][0])
    with pytest.raises(ValueError, match='embeddings="svd" with a prepare.latent_dim of') as raised:
        prepare(one, tmp_path / "data", **NAMES)
    assert "--" not in str(raised.value)


def test_a_pandas_frame_of_objects_is_text(frame: pl.DataFrame, tmp_path: Path) -> None:
    texts = pd.DataFrame({name: [f"x{v}" for v in frame[name]] for name in frame.columns})
    fitted = policy().fit(texts, **NAMES)
    assert str(fitted.item_ids_[0]).startswith("x")
