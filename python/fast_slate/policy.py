"""Interactions → a policy, in scikit-learn's manners."""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from . import _interactions, _native, rewards
from ._progress import Watcher
from .recommender import Answering, Shards, count, opened, packed, unpacked
from .results import Picture, Table

PREPARE = "prepare."
ALL = "all"
"""The folder in a run's folder of what was fitted again on everybody."""
KEYS = {"reward": "reward.kind", "slate_size": "slate_size", "seed": "seed"}
"""The arguments of a preparation that are settings of a run too."""


class NotFittedError(ValueError, AttributeError):
    """A policy is asked before it was fitted or loaded."""


class SlatePolicy(Answering):
    """A policy that shows the K items of largest inner product with a query, trained for a reward.

    Parameters
    ----------
    slate_size
        K, the number of items on a slate; by default the one that the vectors of a prepared folder were
        chosen by, else 5.
    reward
        What a slate is worth: ``"discounted"``, ``"dcg"``, ``"hits"``, ``"any-hit"``,
        ``"reciprocal-rank"``, ``"cascade"``, ``"diverse"``, ``"diverse-any-hit"``, or a function
        ``f(batch, slates)`` that returns a number for each slate (see :class:`Batch`). A function is
        called once a step with all slates. By default the one that the vectors of a prepared folder
        were chosen by, else ``"discounted"``.
    embeddings
        The source of the item vectors: ``"auto"`` (what earns most on users that it was not fitted
        on; it looks for ``prepare.within`` seconds at most), ``"svd"``, ``"als"``, a file, or a folder
        that was prepared before, such as ``data`` in a ``run_dir``: what was chosen there is fitted to these
        interactions.
    preset
        The defaults to begin with: ``"default"`` or ``"paper"``.
    steps, seconds
        How long to train; by default as long as the preset does.
    seed
        Seed of everything random: the split, the vectors, the run; 0 by default.
    device
        ``"ndarray"``, ``"flex"`` or ``"wgpu"``; by default a GPU if there is one, else the CPU.
    refit
        Whether ``fit`` does the same again on everybody once held-out users have chosen, and answers
        with that; ``evaluate`` judges what it was before. Not after a training in shards, whose vectors
        are elsewhere.
    settings
        Any other settings by their dotted keys, as in ``{"method.sigma": "relative(0.5)"}``, and
        those of the preparation, as in ``{"prepare.min_user_interactions": 5}``. ``set_params``
        reaches them with ``method__sigma=…``. A setting that is a parameter too, such as
        ``slate_size``, is given in one of the two places.
    """

    def __init__(
        self,
        *,
        slate_size: int | None = None,
        reward: str | rewards.Reward | None = None,
        embeddings: str | os.PathLike[str] = "auto",
        preset: str = "default",
        steps: int | None = None,
        seconds: int | None = None,
        seed: int | None = None,
        device: str | None = None,
        refit: bool = True,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.slate_size = slate_size
        self.reward = reward
        self.embeddings = embeddings
        self.preset = preset
        self.steps = steps
        self.seconds = seconds
        self.seed = seed
        self.device = device
        self.refit = refit
        self.settings = settings

    # What scikit-learn asks of an estimator.

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; if ``deep``, each setting too, as ``method__sigma``."""
        params = {name: getattr(self, name) for name in self._names()}
        if deep:
            own = self.settings or {}
            params |= {key.replace(".", "__"): value for key, value in own.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Changes parameters, or settings: ``set_params(steps=100, method__sigma="relative(0.5)")``."""
        names = self._names()
        for name, value in params.items():
            if name in names:
                setattr(self, name, value)
            elif "__" in name:
                self.settings = {**(self.settings or {}), name.replace("__", "."): value}
            else:
                raise ValueError(f"no parameter `{name}`; there are {', '.join(names)}")
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if value != defaults[name].default
        }
        return f"SlatePolicy({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_recommender") or hasattr(self, "_files")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def __getstate__(self) -> dict[str, Any]:
        state = self.get_params(deep=False)
        if hasattr(self, "_recommender"):
            state["_files"] = packed(self._recommender)
        elif hasattr(self, "_files"):
            state["_files"] = self._files
        if hasattr(self, "history_"):  # a bundle has none
            state["history_"] = self.history_
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Opened when it is first asked: what cannot be, as in a process that was forked, is told to whoever asks.
        self.__dict__.update(state)

    # Training.

    def fit(
        self,
        interactions: Any = None,
        y: None = None,
        *,
        user: str | None = None,
        item: str | None = None,
        time: str | None = None,
        weight: str | None = None,
        item_embeddings: Any = None,
        user_features: Any = None,
        callback: Callable[[dict[str, Any]], object] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
        shards: Shards | None = None,
    ) -> Self:
        """Prepares the interactions and trains.

        Parameters
        ----------
        interactions
            Anything with ``__arrow_c_stream__`` (a Polars or pandas frame, a pyarrow table, a DuckDB
            relation), a scipy sparse matrix of users and items, the path of a file, or of a prepared
            folder, with which no argument or setting of the preparation may be given. With ``resume``
            a prepared folder is where the run's data are now; anything else is not read.
        y
            Ignored; scikit-learn's pipelines pass it.
        user, item, time, weight
            Names of columns. A time is needed by a split by time and by ``context.recency``; numbers
            are seconds since 1970 (or milli-, micro- or nanoseconds, told by their size), texts are
            ISO 8601. The model
            knows interactions, not weights: a weight counts by ``settings={"prepare.min_rating": …}``
            alone, below which a row is no interaction.
        item_embeddings
            Vectors of your own: a pair of ids and an array ``[P, L]``, a table with ``item_id``, or a
            file.
        user_features
            A table of users, or a file of one. Its column of ids has the name that ``user`` gives, or,
            beside a sparse matrix, the name "user"; the others are features. They count with
            ``settings={"context.encoders": ["weighted-mean", "features"]}``.
        callback
            Called with a dictionary a few times a second (``kind`` "step") and at every evaluation
            (``kind`` "evaluation": ``step``, ``split``, ``reward``, …; other kinds are of audits), of the
            training and of the refit. What it raises ends the run.
        run_dir
            The folder of the run, as ``slate train`` writes it, with the prepared folder ``data``
            inside, which must not be there before, and what ``slate refit`` makes of the run in the folder
            ``all``. Without one the run is in a temporary folder, which goes with the policy, and
            which stays, and is named, when the training is interrupted or fails.
        resume
            Go on with the run in ``run_dir``, on its own data; it ends as one that was never stopped. No
            argument of the preparation may be given.
        shards
            Where items are searched for, as :class:`fast_slate.ray.ShardedRetriever`, in the place of
            this process. Their vectors must be those that the settings make of the data.
        """
        keys, more = self._keys()
        _native.resolve(self.preset, list(keys.items()), self.device)
        if callback is not None and not callable(callback):
            raise ValueError(f"callback: expected a function, found {callback!r}")
        if shards is not None and not (callable(shards) and hasattr(shards, "vectors")):
            raise ValueError(f"shards: expected a fast_slate.ray.ShardedRetriever, found {shards!r}")
        if interactions is None and not resume:
            raise ValueError("interactions: expected a table, a sparse matrix or a path")
        columns = {"user": user, "item": item, "time": time, "weight": weight}
        there = _interactions.is_prepared(interactions)
        self._check_place(run_dir, resume=resume, is_prepared=there)
        given = {**columns, "item_embeddings": item_embeddings, "user_features": user_features}
        if resume:
            _check_unused(given, f"the run in {run_dir} goes on with its own data", "leave it out")
        elif there:
            given["embeddings"] = None if self.embeddings == "auto" else self.embeddings
            given |= {f"settings['{PREPARE}{key}']": value for key, value in more.items()}
            advice = "leave it out, or give the interactions in place of the folder"
            _check_unused(given, f"{interactions} is prepared already", advice)
        # Before the preparation, so that of two fits into one folder the first goes on.
        lock = None if run_dir is None else _native.Lock(str(run_dir))
        folder = Path(run_dir or tempfile.mkdtemp(prefix="fast-slate-")).absolute()
        try:
            data = str(interactions) if there else None  # a run that goes on knows its data
            if not (resume or there):
                data = str(folder / "data")
                _prepare(
                    interactions,
                    columns,
                    Path(data),
                    keys,
                    more,
                    item_embeddings=item_embeddings,
                    user_features=user_features,
                    preset=self.preset,
                    embeddings=self.embeddings,
                    overwrite=False,
                )
            run, answering = self._train(data, folder, keys, resume, callback, shards, lock)
            self._adopt(run, str(folder), answering)
            if self.step_ == 0:
                logging.getLogger("fast_slate").info(
                    "no checkpoint is above the start by more than chance: what the item vectors alone "
                    "recommend is what answers"
                )
        except BaseException as error:
            self._keep_or_remove(folder, run_dir is None, error)
            raise
        finally:
            if lock is not None:
                lock.release()
        self._own(folder if run_dir is None else None, [folder, *([data] if data else [])])
        self._has_index = bool(getattr(shards, "has_index", False))
        return self

    def _check_place(
        self, run_dir: str | os.PathLike[str] | None, *, resume: bool, is_prepared: bool
    ) -> None:
        """Refuses a folder that holds what a fit would write to it."""
        if run_dir is None:
            if resume:
                raise ValueError("run_dir: resume=True goes on with a run, so name its folder")
            return
        if resume:
            return
        folder = Path(run_dir)
        if (folder / "run.toml").exists():
            raise ValueError(
                f"run_dir: {run_dir} holds a run already; go on with resume=True, or give another"
            )
        if not is_prepared and (folder / "data").exists():
            raise ValueError(
                f"run_dir: {folder / 'data'} is there already; give it in place of the interactions if it "
                "is prepared data, or name another run_dir"
            )
        if self.refit and (folder / ALL).exists():
            raise ValueError(
                f"run_dir: {folder / ALL} is there already, where the fit on everybody goes; name "
                "another run_dir, or give refit=False"
            )

    def _train(
        self,
        data: str | None,
        folder: Path,
        keys: dict[str, Any],
        resume: bool,
        callback: Callable[[dict[str, Any]], object] | None,
        shards: Shards | None,
        lock: _native.Lock | None,
    ) -> tuple[_native.Run, _native.Run]:
        """The run, and the one that answers: the fit on everybody, if there is one."""

        # Adapted for each run: it keeps the ids of one catalogue, and another has another order.
        def own() -> Any:
            return rewards.adapted(self.reward) if callable(self.reward) else None

        watcher = Watcher(callback)
        try:
            run = _native.train(
                data,
                str(folder),
                self.preset,
                list(keys.items()),
                device=self.device,
                resume=resume,
                reward=own(),
                shards=None if shards is None else (shards, shards.vectors),
                watcher=watcher,
                lock=lock,
            )
            if not (self.refit and shards is None and run.can_be_refitted()):
                return run, run
            again = str(folder / ALL)
            return run, _native.refit(
                str(folder), again, device=self.device, reward=own(), watcher=watcher
            )
        finally:
            watcher.close()

    def _own(self, temporary: Path | None, used: Sequence[str | Path]) -> None:
        """Removes the folder of the fit before, unless what is used now is in it, and owns this one."""
        before: list[Any] = getattr(self, "_temporary", [])
        kept = []
        for finalizer in before:
            alive = finalizer.peek()
            if alive and any(Path(one).resolve().is_relative_to(alive[2][0].resolve()) for one in used):
                kept.append(finalizer)
            else:
                finalizer()
        if temporary is not None:
            kept.append(weakref.finalize(self, _remove, temporary, os.getpid()))
        self._temporary = kept

    @staticmethod
    def _keep_or_remove(folder: Path, is_temporary: bool, error: BaseException) -> None:
        if (folder / "run.toml").exists():
            error.add_note(
                f"the run is in {folder}; go on with fit(run_dir={str(folder)!r}, resume=True)"
            )
        elif (folder / "data" / "prepare.toml").exists():
            error.add_note(f"the prepared data is in {folder / 'data'}; fit it as it is")
        elif is_temporary:
            shutil.rmtree(folder, ignore_errors=True)

    def _adopt(self, run: _native.Run, folder: str, answering: _native.Run) -> None:
        self._run, self.run_dir_ = run, folder
        self._recommender = answering.recommender()
        self.__dict__.pop("_files", None)
        self.history_ = _history(run)
        self.step_: int = json.loads(run.describe())[2]

    def _keys(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The settings of the run, and those of the preparation."""
        if self.steps is not None and self.seconds is not None:
            raise ValueError("steps: give steps or seconds, not both")
        is_own = callable(self.reward)
        if not (self.reward is None or isinstance(self.reward, str) or is_own):
            names = ", ".join(rewards.BUILT_IN)
            raise ValueError(f"reward: expected a function or one of {names}, found {self.reward!r}")
        if not (self.settings is None or isinstance(self.settings, dict)):
            raise ValueError(f"settings: expected a dictionary, found {self.settings!r}")
        given = [(name, key, getattr(self, name)) for name, key in KEYS.items()]
        for unit, amount in (("steps", self.steps), ("seconds", self.seconds)):
            if amount is not None:
                count(amount, unit, 1)
                given += [(unit, "budget.unit", unit), (unit, "budget.amount", amount)]
        keys, more = divided(self.settings, given)
        if is_own:
            del keys["reward.kind"]  # a function is no setting
        return keys, more

    # After training.

    def _asked(self) -> _native.Recommender:
        if hasattr(self, "_files"):
            self._recommender = unpacked(self._files, self.device)
            del self._files
        if not hasattr(self, "_recommender"):
            raise NotFittedError("this SlatePolicy is not fitted yet; call fit, or load one")
        return self._recommender

    def _trained(self) -> _native.Run:
        self._asked()
        if not hasattr(self, "_run"):
            raise ValueError(
                "this policy came from a bundle or a pickle, which holds no held-out users; load the "
                "run's folder"
            )
        return self._run

    def evaluate(
        self,
        *,
        against: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        split: str | None = None,
        metrics: str | Iterable[str] = (),
        tune: int = 0,
        halves: int | None = None,
        index: bool = False,
    ) -> Table:
        """The reward on held-out users, beside other recommenders on the same users.

        Parameters
        ----------
        against
            The other recommenders: ``"popularity"``, ``"uniform"``, ``"svd"``, ``"als"``, ``"ease"``,
            ``"item-knn"``, or folders of runs on the same data.
        split
            ``"train"``, ``"validation"`` or ``"test"``; by default the test, if it has users.
        metrics
            Such as ``"recall@20"``, ``"ndcg@100"``, ``"hits@10"``, on exact slates of that length.
        tune
            Whole seconds in which each baseline is tuned on the validation users.
        halves
            How many halves of their items each user is asked about, of every row alike: more make the
            intervals narrower. By default one, and of validation users as many as in training.
        index
            Retrieve through the index instead of exactly. After a fit in shards, theirs.

        Returns
        -------
        Table
            A row for the policy, for its own step 0 and for each of ``against``: ``name``, ``reward``,
            ``reward_se``, ``ndcg``, ``recall``, ``hit_rate``, ``catalogue_coverage``, the metrics, the
            policy's reward minus the row's (``difference``, with its paired 95 % interval ``low`` and
            ``high``), and a ``note``.
        """
        count(tune, "tune", 0)
        if halves is not None:
            count(halves, "halves", 1)
        if (metrics or not index) and getattr(self, "_has_index", False):
            raise ValueError(
                "index: the run is searched in shards that have an index; start the shards with "
                "exact=True, or evaluate with index=True and without metrics"
            )
        listed = [
            [str(of)] if isinstance(of, str | os.PathLike) else [str(one) for one in of]
            for of in (against, metrics)
        ]
        found = json.loads(self._trained().judge(listed[0], split, listed[1], tune, halves, index))
        zero = dict.fromkeys(("mean", "low", "high"))
        rows = [
            {**found, "name": "policy", "difference": zero},
            {**found["start"], "name": "its step 0", "difference": found["gain"]},
            *found["against"],
        ]
        names = ["reward", "reward_se", "ndcg", "recall", "hit_rate", "catalogue_coverage"]
        columns: dict[str, list[Any]] = {"name": [row["name"] for row in rows]}
        for name in [*names, *listed[1]]:
            columns[name] = [row.get(name) for row in rows]
        for name, key in (("difference", "mean"), ("low", "low"), ("high", "high")):
            columns[name] = [(row.get("difference") or zero)[key] for row in rows]
        columns["note"] = [row.get("note") or row.get("refused") or _untuned(row) for row in rows]
        return Table(columns)

    def plot(self) -> Picture:
        """The learning curves on training and validation users, as SVG."""
        return Picture(self._trained().plot())

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        device: str | None = None,
        reward: rewards.Reward | None = None,
        checkpoint: str | int = "best",
    ) -> Self:
        """Opens a bundle, or a run at a checkpoint: ``"best"``, ``"last"`` or a step.

        ``reward`` is the function that the run was trained for, if it was one. A bundle takes neither
        it nor a checkpoint.
        """
        if not Path(folder).exists():
            raise FileNotFoundError(f"folder: {folder} is not there")
        policy = cls(device=device)
        if _native.Recommender.is_bundle(str(folder)):
            for name, is_given in (("reward", reward is not None), ("checkpoint", checkpoint != "best")):
                if is_given:
                    raise ValueError(f"{name}: {folder} is a bundle, which has none; load the run")
            policy._recommender = opened(str(folder), device)
            policy.slate_size = policy._recommender.slate_size
            return policy
        own = None if reward is None else rewards.adapted(reward)
        run = _native.Run.open(str(folder), device, str(checkpoint), own)
        settings, origin, _step = json.loads(run.describe())
        policy.set_params(slate_size=settings["slate_size"], seed=settings["seed"])
        # A run that was trained for a function did not use this setting.
        policy.reward = reward or (None if origin.get("reward") else settings["reward"]["kind"])
        policy._adopt(run, str(Path(folder).absolute()), run)
        return policy


def _remove(folder: Path, process: int) -> None:
    """Removes a temporary folder, unless a child that was forked ends."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _untuned(row: dict[str, Any]) -> str | None:
    """What is said of a baseline that has settings and was not tuned."""
    return "not tuned" if row.get("settings") and not row["tried"] else None


def _history(run: _native.Run) -> Table:
    """The evaluations of a run."""
    rows = [row for row in json.loads(run.history()) if row["kind"] == "evaluation"]
    columns = {
        name: [row[name] for row in rows]
        for name in ("step", "seconds", "split", "reward", "reward_se", "learning_rate")
    }
    for name, key in (("gain", "mean"), ("gain_low", "low"), ("gain_high", "high")):
        columns[name] = [row["gain"][key] for row in rows]
    return Table(columns)


def divided(
    settings: dict[str, Any] | None, given: Iterable[tuple[str, str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of a run, and those of a preparation without their prefix.

    ``given`` has arguments, each with the key of the setting that it is, and its value or None.
    """
    keys: dict[str, Any] = {}
    more: dict[str, Any] = {}
    for key, value in (settings or {}).items():
        if key.startswith(PREPARE):
            more[key.removeprefix(PREPARE)] = value
        else:
            keys[key] = value
    for argument, key, value in given:
        if value is None:
            continue
        if key in keys and keys[key] != value:
            raise ValueError(
                f"{argument}: expected {keys[key]!r} as in settings['{key}'], found {value!r}; give "
                "one of the two"
            )
        keys[key] = value
    return keys, more


def wanted(arguments: dict[str, Any], more: dict[str, Any]) -> str:
    """What `_native` is told of a preparation."""
    told = {name: _interactions.plain(value, name) for name, value in arguments.items()}
    keys = {
        key: _interactions.plain(value, f"settings['{PREPARE}{key}']") for key, value in more.items()
    }
    for key in ("test_after", "validation_after"):
        if type(keys.get(key)) is int:  # seconds since 1970
            keys[key] = str(keys[key])
    return json.dumps({**told, "more": keys})


def _prepare(
    interactions: Any,
    columns: dict[str, str | None],
    out: Path,
    keys: dict[str, Any],
    more: dict[str, Any],
    *,
    item_embeddings: Any = None,
    user_features: Any = None,
    feature_id: str | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Prepares into ``out``, with the settings that :func:`divided` returns.

    The library reads vectors and features from files. The prepared folder records their names, and
    its digest covers them, so they are the same each time.
    """
    arguments |= {name: keys[key] for name, key in KEYS.items() if key in keys}
    told = {**columns, **arguments, "out": out}
    check(told, more, item_embeddings=item_embeddings, user_features=user_features)
    source, columns = _interactions.read(interactions, columns, more.get("rows"))
    files = out.parent / f".{out.name}.inputs"
    in_memory = any(
        given is not None and not isinstance(given, str | os.PathLike)
        for given in (item_embeddings, user_features)
    )
    if in_memory:
        own_folder(files)
    try:
        if item_embeddings is not None:
            found = _interactions.item_embeddings(item_embeddings, files)
            arguments["embeddings"], arguments["embedding_ids"] = found
        if user_features is not None:
            arguments["feature_id"] = feature_id or columns["user"]
            asked = list(more.get("feature_columns") or [])
            asked = [arguments["feature_id"], *asked] if asked and arguments["feature_id"] else []
            arguments["user_features"] = _interactions.user_features(user_features, files, asked)
        described = _native.prepare(source, wanted({**columns, **arguments, "out": out}, more))
    except (KeyError, ValueError) as error:
        # The files are gone when the message is read.
        said = str(error.args[0]) if error.args else ""
        for name in ("item_embeddings", "user_features"):
            said = re.sub(re.escape(str(files / name)) + r"\.\w+", name, said)
        if error.args and said != error.args[0]:
            error.args = (said,)
        raise
    finally:
        if in_memory:
            shutil.rmtree(files, ignore_errors=True)
    return dict(json.loads(described))


def _check_unused(given: dict[str, Any], why: str, advice: str) -> None:
    """Refuses arguments that would not count."""
    if names := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"{', '.join(names)}: {why}, so that this would not count; {advice}")


def check(
    told: dict[str, Any], more: dict[str, Any], *, item_embeddings: Any, user_features: Any
) -> None:
    """Refuses what a preparation cannot take, before a stream is read that can be read once."""
    if item_embeddings is not None and told.get("embeddings") not in (None, "auto"):
        raise ValueError(
            "item_embeddings: embeddings= names a source of the item vectors already; give one of "
            "the two"
        )
    # The library is told of files, which are not there yet, by names that no file or folder can have.
    files = {"embeddings": item_embeddings, "user_features": user_features}
    told = {**told, **{name: f"\0{name}" for name, given in files.items() if given is not None}}
    _native.check_prepare(wanted({**told, "feature_id": "user"}, more))


def own_folder(files: Path) -> None:
    """Makes a folder for files that go when the preparation is done."""
    files.parent.mkdir(parents=True, exist_ok=True)
    try:
        files.mkdir()
    except FileExistsError:
        raise ValueError(
            f"out: {files} is there: another preparation is at work, or one was killed; delete it if "
            "none is"
        ) from None
