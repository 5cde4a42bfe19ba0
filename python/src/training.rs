//! A prepared folder and settings → a run, trained or opened again.

use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fast_slate::chart::{Axis, Chart, Line, Point};
use fast_slate::dataset::Split;
use fast_slate::device;
use fast_slate::evaluation::MetricAt;
use fast_slate::facade::{Judging, Policy, Prepared, Preset, Refitting, Settings, Which};
use fast_slate::interrupt::interruptible;
use fast_slate::run::{RunFolder, RunLock, RunOrigin};
use fast_slate::settings::SettingsBuilder;
use fast_slate::training::{MetricsRow, Observer, Progress, Trainer, read_metrics};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyTuple};
use serde::de::DeserializeOwned;
use toml::Value;

use crate::error::{exception, wrong};
use crate::recommender::Recommender;
use crate::reward::{PythonReward, Word};
use crate::shards::PythonShards;
use crate::work::{LOOK, listening, told, work, work_for};

/// Dotted keys and their values, in their order.
type Keys<'py> = Vec<(String, Bound<'py, PyAny>)>;

/// A function and its name.
type Named = (Py<PyAny>, String);

/// Reads an argument that is one of the names that are `known`.
fn named<T: DeserializeOwned>(argument: &str, name: &str, known: &str) -> PyResult<T> {
    let unknown = |_| wrong(argument, format!("expected {known}, found \"{name}\""));
    serde_json::from_value(name.into()).map_err(unknown)
}

fn preset(name: &str) -> PyResult<Preset> {
    named("preset", name, "\"default\" or \"paper\"")
}

fn value(key: &str, of: &Bound<'_, PyAny>) -> PyResult<Value> {
    let unfit = || {
        let found = of.get_type();
        wrong(key, format!("expected a number, a text, a truth or a list of them, found {found}"))
    };
    if of.is_instance_of::<PyBool>() {
        return Ok(Value::Boolean(of.extract()?));
    }
    if of.is_instance_of::<PyList>() || of.is_instance_of::<PyTuple>() {
        let items = of.try_iter()?.map(|item| value(key, &item?));
        return Ok(Value::Array(items.collect::<PyResult<_>>()?));
    }
    // Numbers of numpy are integers to Python if they say so, and floats otherwise.
    if of.hasattr("__index__")? {
        return of.extract().map(Value::Integer).map_err(|_| unfit());
    }
    if let Ok(text) = of.extract::<String>() {
        return Ok(Value::String(text));
    }
    of.extract().map(Value::Float).map_err(|_| unfit())
}

fn values(keys: &Keys<'_>) -> PyResult<Vec<(String, Value)>> {
    keys.iter().map(|(key, of)| Ok((key.clone(), value(key, of)?))).collect()
}

/// The method comes first: it decides which keys there are.
fn overlaid(base: &Settings, keys: Vec<(String, Value)>) -> fast_slate::Result<Settings> {
    let (first, others): (Vec<_>, Vec<_>) =
        keys.into_iter().partition(|(key, _)| key == "method.kind");
    let mut builder = SettingsBuilder::new(base)?;
    for (key, value) in first.into_iter().chain(others) {
        builder = builder.set(&key, value)?;
    }
    builder.build()
}

/// Checks settings, and that there is such a device, before any data is read; returns the whole as TOML.
#[pyfunction]
#[pyo3(signature = (name, keys, device = None))]
pub fn resolve(name: &str, keys: Keys<'_>, device: Option<&str>) -> PyResult<String> {
    if device.is_some() {
        device::choose(device).map_err(exception)?;
    }
    let settings = overlaid(&preset(name)?.settings(), values(&keys)?).map_err(exception)?;
    toml::to_string(&settings).map_err(|error| wrong("settings", error))
}

/// Tells Python of a run, and the run of Python's signals.
struct Watcher {
    /// Takes the kind of the message and its content.
    call: Option<Py<PyAny>>,
    word: Word,
    heard: Instant,
}

impl Watcher {
    fn tell(&mut self, tell: impl FnOnce(Python<'_>, &Py<PyAny>) -> PyResult<()>) {
        self.heard = Instant::now();
        let told = Python::attach(|py| {
            py.check_signals()?;
            self.call.as_ref().map_or(Ok(()), |call| tell(py, call))
        });
        if let Err(exception) = told {
            self.word.say(exception);
        }
    }
}

impl Observer for Watcher {
    fn stepped(&mut self, progress: Progress) {
        if self.heard.elapsed() >= LOOK {
            let Progress { step, spent, seconds, sampled_reward, .. } = progress;
            let content = (step, spent, seconds, sampled_reward);
            self.tell(|py, call| call.call1(py, ("step", content)).map(drop));
        }
    }

    fn recorded(&mut self, rows: &[MetricsRow]) {
        if let Ok(rows) = serde_json::to_string(rows) {
            self.tell(|py, call| call.call1(py, ("recorded", rows)).map(drop));
        }
    }

    fn warned(&mut self, message: &str) {
        tracing::warn!("{message}");
    }
}

/// Keeps other fits, of this process and of others, from training in a folder.
#[pyclass(frozen, module = "fast_slate._native")]
pub struct Lock(Mutex<Option<RunLock>>);

#[pymethods]
impl Lock {
    /// Takes the folder `run`.
    #[new]
    fn new(run: PathBuf) -> PyResult<Self> {
        let lock = RunFolder::new(run).lock().map_err(exception)?;
        Ok(Self(Mutex::new(Some(lock))))
    }

    /// Gives it back.
    fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Trains, or goes on with, the run in the folder `run`, which `lock` has taken if it is given. The reward is one of the settings, or a
/// function and its name. Of shards there is the function that asks them ([`PythonShards`]) and the digest of
/// their vectors.
#[pyfunction]
#[pyo3(signature = (data, run, name, keys, *, device = None, resume = false, reward = None, shards = None, watcher = None, lock = None))]
#[allow(clippy::too_many_arguments, reason = "called once, by name")]
pub fn train(
    py: Python<'_>,
    data: Option<PathBuf>,
    run: PathBuf,
    name: &str,
    keys: Keys<'_>,
    device: Option<String>,
    resume: bool,
    reward: Option<Named>,
    shards: Option<(Py<PyAny>, String)>,
    watcher: Option<Py<PyAny>>,
    lock: Option<&Lock>,
) -> PyResult<Run> {
    let is_taken = lock.is_some();
    let asked = shards.as_ref().map(|(call, vectors)| (call.clone_ref(py), vectors.clone()));
    let (preset, keys, word) = (preset(name)?, values(&keys)?, Word::of_training());
    let own = reward.as_ref().map(|(call, name)| (call.clone_ref(py), name.clone()));
    let mut watcher = Watcher { call: watcher, word: word.clone(), heard: Instant::now() };
    let folder = RunFolder::new(&run);
    let trained = told(py, &word, || {
        let _lock = if is_taken { None } else { Some(folder.lock()?) };
        let recorded = if resume { Some(folder.read_settings()?) } else { None };
        let (data, device) = match &recorded {
            Some((_, origin)) => (
                data.unwrap_or_else(|| origin.data.clone()),
                device.or_else(|| Some(origin.device.clone())),
            ),
            None => (data.unwrap_or_default(), device),
        };
        let chosen = device::choose(device.as_deref())?;
        let prepared = Prepared::open(&data)?;
        let (base, began) = match recorded {
            Some((settings, origin)) => (settings, Some(origin)),
            None => (prepared.preset(preset), None),
        };
        let settings = overlaid(&base, keys)?;
        let mut origin = RunOrigin::new(&prepared, chosen.name);
        let began = began.unwrap_or_else(|| origin.clone());
        // It may fit vectors without folds, at length. The training itself ends after a step, with a checkpoint.
        let load = || began.task(&prepared, &settings);
        let mut task = interruptible(listening(&word), load)?;
        if let Some(own) = own {
            origin.reward = Some(own.1.clone());
            let ids = PythonReward::ids(prepared.folder())?;
            let own = PythonReward::new(own, &task.sessions, ids, &word);
            task = task.with_reward(std::sync::Arc::new(own));
        }
        if let Some((call, vectors)) = asked {
            if vectors != task.actions.digest() {
                let problem = "hold other vectors than these settings make of this data; export them \
                               from a run with the same, in f32";
                let (key, problem) = ("shards".into(), problem.into());
                return Err(fast_slate::Error::Setting { key, problem });
            }
            origin.sharded = true;
            task = task.through(PythonShards::new(call, &word));
        }
        task = task.on(&chosen)?;
        task.check(&settings, &chosen.device)?;
        if resume {
            folder.resume(&settings, origin)?;
        } else {
            folder.begin(&settings, &origin)?;
        }
        let stop = &word.stop;
        let device = &chosen.device;
        let trainer = Trainer { task: &task, settings: &settings, run: &folder, device, stop };
        trainer.train(&mut watcher)?;
        Ok(chosen.name)
    });
    let device = word.heard(trained)?;
    let mut run = Run::open(py, run, Some(device.to_owned()), "best", reward)?;
    if let Some((call, _)) = shards {
        run.policy.task = run.policy.task.through(PythonShards::new(call, &run.word));
    }
    Ok(run)
}

/// Does in the folder `run` on everybody what led the run `of` to its best checkpoint, or goes on with that. What was
/// done again there before `of` went on is replaced.
/// The reward is the function that the other was trained for, and its name, if there was one.
#[pyfunction]
#[pyo3(signature = (of, run, *, device = None, reward = None, watcher = None))]
pub fn refit(
    py: Python<'_>,
    of: PathBuf,
    run: PathBuf,
    device: Option<String>,
    reward: Option<Named>,
    watcher: Option<Py<PyAny>>,
) -> PyResult<Run> {
    let word = Word::of_training();
    let own = reward.as_ref().map(|(call, name)| (call.clone_ref(py), name.clone()));
    let mut watcher = Watcher { call: watcher, word: word.clone(), heard: Instant::now() };
    let folder = RunFolder::new(&run);
    let trained = told(py, &word, || {
        let again = Refitting::of(&of, Which::Best)?;
        let recorded = again.origin.reward.as_ref();
        if recorded != own.as_ref().map(|(_, name)| name) {
            let name = recorded.map_or("a built-in one".into(), |name| format!("`{name}`"));
            let (key, problem) = ("reward".into(), format!("the run was trained for {name}"));
            return Err(fast_slate::Error::Setting { key, problem });
        }
        let chosen = device::choose(device.as_deref().or(Some(&again.origin.device)))?;
        again.replace(&run)?;
        let _lock = folder.lock()?;
        let load = || again.task(&run, chosen.name);
        let (mut task, origin) = interruptible(listening(&word), load)?;
        if let Some((call, name)) = own {
            let ids = PythonReward::ids(&origin.data)?;
            let own = PythonReward::new((call, name), &task.sessions, ids, &word);
            task = task.with_reward(std::sync::Arc::new(own));
        }
        task = task.on(&chosen)?;
        let (settings, device, stop) = (&again.settings, &chosen.device, &word.stop);
        task.check(settings, device)?;
        again.begin(&folder, origin)?;
        Trainer { task: &task, settings, run: &folder, device, stop }.train(&mut watcher)?;
        Ok(chosen.name)
    });
    let device = word.heard(trained)?;
    Run::open(py, run, Some(device.to_owned()), "best", reward)
}

/// A trained run, opened at a checkpoint.
#[pyclass(frozen, module = "fast_slate._native")]
pub struct Run {
    folder: RunFolder,
    /// A device wants more alignment than Python gives to an object.
    policy: Box<Policy>,
    checkpoint: Which,
    device: Option<String>,
    /// What the policy's own reward raised.
    word: Word,
    can_judge: bool,
}

const _: () = assert!(align_of::<Run>() <= 16, "Python aligns objects to 16 bytes");

#[pymethods]
impl Run {
    /// Opens the run in `folder`.
    #[staticmethod]
    #[pyo3(signature = (folder, device, checkpoint, reward = None))]
    fn open(
        py: Python<'_>,
        folder: PathBuf,
        device: Option<String>,
        checkpoint: &str,
        reward: Option<Named>,
    ) -> PyResult<Self> {
        let checkpoint = Which::from_str(checkpoint).map_err(|error| wrong("checkpoint", error))?;
        let mut policy = work(py, || Policy::open(&folder, checkpoint, device.as_deref()))?;
        let (recorded, word) = (policy.origin.reward.clone(), Word::default());
        let given = reward.as_ref().map(|(_, name)| name.clone());
        if given.is_some() && given != recorded {
            let name =
                |of: Option<String>| of.map_or("a built-in one".into(), |of| format!("`{of}`"));
            let problem =
                format!("the run was trained for {}, found {}", name(recorded), name(given));
            return Err(wrong("reward", problem));
        }
        let can_judge = given == recorded;
        if let Some(reward) = reward {
            let ids = PythonReward::ids(&policy.origin.data).map_err(exception)?;
            let reward = PythonReward::new(reward, &policy.task.sessions, ids, &word);
            policy.task = policy.task.with_reward(std::sync::Arc::new(reward));
        }
        let folder = RunFolder::new(folder);
        Ok(Self { folder, policy: Box::new(policy), checkpoint, device, word, can_judge })
    }

    /// Everything that serving needs, in memory.
    fn recommender(&self, py: Python<'_>) -> PyResult<Recommender> {
        work(py, || Ok(Recommender::new(self.policy.recommender()?.clone())))
    }

    /// The policy beside others, as JSON.
    #[pyo3(signature = (against, split, metrics, tune, halves, index))]
    #[allow(clippy::too_many_arguments, reason = "called once, by name")]
    fn judge(
        &self,
        py: Python<'_>,
        against: Vec<PathBuf>,
        split: Option<&str>,
        metrics: Vec<String>,
        tune: u64,
        halves: Option<u64>,
        index: bool,
    ) -> PyResult<String> {
        if !self.can_judge {
            let name = self.policy.origin.reward.as_deref().unwrap_or_default();
            let problem = format!("the run was trained for `{name}`: load it with that function");
            return Err(wrong("reward", problem));
        }
        let known = "\"train\", \"validation\" or \"test\"";
        let split = split.map(|name| named("split", name, known)).transpose()?;
        let metrics = metrics.iter().map(|metric| metric.parse::<MetricAt>());
        let metrics = metrics.collect::<Result<_, _>>().map_err(|error| wrong("metrics", error))?;
        let (device, checkpoint) = (self.device.clone(), self.checkpoint);
        let tune = Duration::from_secs(tune);
        let asked = Judging { split, against, tune, metrics, halves, index, checkpoint, device };
        let judged = work_for(py, &self.word, || self.policy.judge(&asked))?;
        serde_json::to_string(&judged).map_err(|error| wrong("against", error))
    }

    /// True if there are users or items that the run was not trained on, and [`refit`] would.
    fn can_be_refitted(&self) -> bool {
        self.policy.can_be_refitted()
    }

    /// The rows of `metrics.jsonl`, as JSON.
    fn history(&self) -> PyResult<String> {
        let rows = read_metrics(&self.folder.metrics_path()).map_err(exception)?;
        serde_json::to_string(&rows).map_err(|error| wrong("run_dir", error))
    }

    /// The learning curves, as SVG.
    fn plot(&self) -> PyResult<String> {
        let rows = read_metrics(&self.folder.metrics_path()).map_err(exception)?;
        let points = |wanted: Split| {
            let point = |row: &MetricsRow| match *row {
                MetricsRow::Evaluation { step, split, reward, reward_se, .. }
                    if split == wanted =>
                {
                    Some(Point { x: step as f64, y: reward, error: reward_se })
                }
                _ => None,
            };
            rows.iter().filter_map(point).collect()
        };
        let lines = [Split::Validation, Split::Train].into_iter().enumerate();
        let lines = lines.map(|(colour, split)| Line {
            name: format!("{split} users"),
            colour,
            points: points(split),
        });
        let axis = |name: &str| Axis { name: name.to_owned(), logarithmic: false };
        let chart = Chart {
            title: "Reward".to_owned(),
            x: axis("steps"),
            y: axis("mean over users ± standard error"),
            lines: lines.collect(),
        };
        chart.svg().map_err(exception)
    }

    /// Settings, origin and step, as JSON.
    fn describe(&self) -> PyResult<String> {
        let Policy { settings, origin, step, .. } = &*self.policy;
        serde_json::to_string(&(settings, origin, step)).map_err(|error| wrong("run_dir", error))
    }
}
