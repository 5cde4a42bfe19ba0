//! Fixtures, and ways to run the binary.

pub(crate) mod enumeration;
pub(crate) mod monte_carlo;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use burn::module::{Module as _, ModuleVisitor, Param};
use burn::tensor::Tensor;
use fast_slate::dataset::SyntheticSettings;
use fast_slate::device;
use fast_slate::embedding::{SessionPart, SvdOptions};
use fast_slate::prepared::{EmbeddingSource, Input, PrepareSettings, Prepared};
use fast_slate::run::{RunFolder, Which};
use fast_slate::task::Task;
use fast_slate::training::{MetricsRow, read_metrics};
use polars::prelude::{DataFrame, ParquetReader, SerReader as _};

/// The binary, quiet about the device, with no colours and no inherited settings.
pub(crate) fn slate() -> Command {
    Command::from_std(process())
}

/// [`slate`] as a command whose process id can be read.
pub(crate) fn process() -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_slate"));
    command.env_remove("SLATE_LOG").env("NO_COLOR", "1").env("NODEVICE_SELECT", "1");
    command
}

/// Synthetic sessions that train in a second: 400 users, 300 actions, L = 16.
pub(crate) fn small(folder: &Path) -> Prepared {
    small_of(folder, 16)
}

/// The sessions of [`small`] with embeddings of `latent_dim` numbers.
pub(crate) fn small_of(folder: &Path, latent_dim: usize) -> Prepared {
    small_with(folder, &svd(latent_dim))
}

/// The sessions of [`small`] with these settings.
pub(crate) fn small_with(folder: &Path, settings: &PrepareSettings) -> Prepared {
    let synthetic =
        SyntheticSettings { users: 400, actions: 300, topics: 12, ..SyntheticSettings::default() };
    Prepared::create(&Input::Synthetic(synthetic), settings, folder, false).unwrap()
}

/// Embeddings of `latent_dim` numbers, without a league that takes its time.
pub(crate) fn svd(latent_dim: usize) -> PrepareSettings {
    let embedding = EmbeddingSource::Svd {
        interactions: SessionPart::All,
        options: SvdOptions { latent_dim, ..SvdOptions::default() },
    };
    PrepareSettings { embedding, ..PrepareSettings::default() }
}

/// A log of 60 users with 20 to 26 of 40 items each, in two tastes: columns `who`, `what`, `stars`.
pub(crate) fn log_csv(path: &Path) {
    let mut text = String::from("who,what,stars\n");
    for user in 0..60_u32 {
        let own = (0..16).map(|at| 20 * (user % 2) + (user / 2 + at) % 20);
        let others = (0..4 + user % 7).map(|at| (20 * (1 - user % 2)) + (user * 3 + at) % 20);
        for item in own.chain(others) {
            text += &format!("u{user},i{item},{}\n", 1 + (user + item) % 5);
        }
    }
    fs_err::write(path, text).unwrap();
}

/// A `.npy` file of f32 in rows.
pub(crate) fn npy(path: &Path, rows: usize, cols: usize, numbers: &[f32]) {
    let header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    fs_err::write(path, bytes).unwrap();
}

/// A Parquet file.
pub(crate) fn table(path: &Path) -> DataFrame {
    ParquetReader::new(fs_err::File::open(path).unwrap().into_parts().0).finish().unwrap()
}

/// `command` with files limited to so many KiB: writing beyond them fails as on a full disk.
pub(crate) fn limited(kib: u32, command: &Command) -> Command {
    let mut limited = Command::new("bash");
    let script = format!("trap '' XFSZ; ulimit -f {kib}; exec \"$@\"");
    limited.args(["-c", &script, "bash"]).arg(command.get_program()).args(command.get_args());
    limited.env_remove("SLATE_LOG").env("NO_COLOR", "1");
    limited
}

/// The stdout of a command that has to succeed.
pub(crate) fn stdout(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The one line of the error that the command has to end with: exit code 2, nothing on stdout,
/// `error:` once, on the last line of stderr.
pub(crate) fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{command:?}\n{stderr}");
    assert!(output.stdout.is_empty(), "{command:?}");
    let errors = stderr.lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(errors, 1, "{command:?}\n{stderr}");
    let last = stderr.lines().last().and_then(|line| line.strip_prefix("error: "));
    last.unwrap_or_else(|| panic!("{command:?}\n{stderr}")).to_owned()
}

/// Asserts that `text` holds every one of `parts`.
#[track_caller]
pub(crate) fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

/// Names in a folder, sorted; those that begin with a dot among them.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs_err::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The bits of the last checkpoint's parameters.
pub(crate) fn parameters(prepared: &Prepared, run: &Path) -> Vec<Vec<u32>> {
    struct Bits(Vec<Vec<u32>>);
    impl ModuleVisitor for Bits {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let values = param.val().into_data().try_into_vec::<f32>().unwrap();
            self.0.push(values.into_iter().map(f32::to_bits).collect());
        }
    }
    let run = RunFolder::new(run);
    let (settings, origin) = run.read_settings().unwrap();
    let device = device::choose(Some(&origin.device)).unwrap().device;
    let task = Task::load(prepared, &settings).unwrap();
    let initial = task.initial_model(&settings, &device).unwrap();
    let model = run.checkpoint(Which::Last).unwrap().load_model(initial).unwrap();
    let mut bits = Bits(Vec::new());
    model.visit(&mut bits);
    assert!(!bits.0.is_empty());
    bits.0
}

/// The record of a run, but for the time it took.
pub(crate) fn record(run: &Path) -> Vec<MetricsRow> {
    let mut rows = read_metrics(&run.join("metrics.jsonl")).unwrap();
    for row in &mut rows {
        match row {
            MetricsRow::Evaluation { seconds, .. }
            | MetricsRow::Coverage { seconds, .. }
            | MetricsRow::Recall { seconds, .. }
            | MetricsRow::Rejection { seconds, .. }
            | MetricsRow::Gradient { seconds, .. } => *seconds = 0.0,
        }
    }
    rows
}

/// A training in a process of its own, killed when dropped.
pub(crate) struct Training {
    child: Child,
    run: RunFolder,
}

impl Training {
    /// Starts `slate train` with `args`.
    pub(crate) fn start<A: AsRef<OsStr>>(run: &Path, args: impl IntoIterator<Item = A>) -> Self {
        let mut command = process();
        command.arg("train").arg("--out").arg(run).args(args);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self { child: child.spawn().unwrap(), run: RunFolder::new(run) }
    }

    /// Waits for a checkpoint beyond `step`; whether the training is still going on then.
    pub(crate) fn passes(&mut self, step: u64) -> bool {
        let started = Instant::now();
        while self.run.checkpoints().unwrap().last().is_none_or(|last| *last <= step) {
            assert!(started.elapsed() < Duration::from_mins(2), "no checkpoint beyond {step}");
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.child.try_wait().unwrap().is_none()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal, such as `-INT`, which is Ctrl-C; returns the exit code and stdout.
    pub(crate) fn interrupt(mut self, signal: &str) -> (Option<i32>, String) {
        let id = self.child.id().to_string();
        // A training that has ended by itself cannot be signalled; its exit code tells.
        let _ = std::process::Command::new("kill").args([signal, &id]).status().unwrap();
        let mut stdout = String::new();
        let mut pipe = self.child.stdout.take().unwrap();
        std::io::Read::read_to_string(&mut pipe, &mut stdout).unwrap();
        (self.child.wait().unwrap().code(), stdout)
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says why a test checks nothing; fails where FAST_SLATE_REQUIRE_DATA=1 asks for
/// every test to check something.
#[track_caller]
pub(crate) fn skipped(why: impl std::fmt::Display) {
    let required = std::env::var_os("FAST_SLATE_REQUIRE_DATA").is_some_and(|value| value == "1");
    assert!(!required, "FAST_SLATE_REQUIRE_DATA=1, but skipped: {why}");
    eprintln!("skipped: {why}");
}

/// A file of the folder that the environment `variable` names; none, by [`skipped`], without it.
#[track_caller]
fn shared_file(variable: &str, name: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(|folder| Path::new(&folder).join(name));
    let found = path.filter(|path| path.exists());
    if found.is_none() {
        skipped(format!("no {name} in ${variable}"));
    }
    found
}

/// A file of the real data.
#[track_caller]
pub(crate) fn real_data(name: &str) -> Option<PathBuf> {
    shared_file("FAST_SLATE_DATA", name)
}

/// The cases of a file of numbers that another implementation made; none without the file.
#[track_caller]
pub(crate) fn gold<T: serde::de::DeserializeOwned>(name: &str) -> Vec<T> {
    #[derive(serde::Deserialize)]
    struct Gold<T> {
        cases: Vec<T>,
    }
    let Some(path) = shared_file("FAST_SLATE_GOLD", name) else { return Vec::new() };
    let text = fs_err::read_to_string(path).unwrap();
    let Gold { cases } = serde_json::from_str(&text).unwrap();
    assert!(!cases.is_empty(), "{name} has no case");
    cases
}

/// The backends that are compiled in and can be used here.
pub(crate) fn devices() -> impl Iterator<Item = &'static str> {
    device::compiled().into_iter().filter(|name| {
        let chosen = device::choose(Some(name));
        chosen.map_err(|error| eprintln!("skipped {name}: {error}")).is_ok()
    })
}
