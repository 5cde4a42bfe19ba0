//! A long task → its result. The GIL is released meanwhile, the library's messages go to Python's
//! `logging`, a signal such as Ctrl-C ends the task, and nothing of that outlives it.

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fast_slate::interrupt::interruptible;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::error::{exception, in_arguments};
use crate::reward::Word;

/// The interval between two looks at signals.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// The process that imported the module.
static PROCESS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn remember_process() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
}

/// Fails in a child that was forked after the import: the threads that would do the work are the
/// parent's, and waiting for them would never end.
pub(crate) fn require_own_process() -> PyResult<()> {
    if PROCESS.load(Ordering::Relaxed) == std::process::id() {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(
        "fast_slate was imported before this process was forked, and its threads are in the parent; \
         start processes with multiprocessing.set_start_method(\"spawn\"), or joblib's loky",
    ))
}

/// Does `task` without the GIL. A signal ends it between two of its pieces.
pub(crate) fn work<T: Send>(
    py: Python<'_>,
    task: impl FnOnce() -> fast_slate::Result<T> + Send,
) -> PyResult<T> {
    work_for(py, &Word::default(), task)
}

/// [`work`] that also ends once something is said to `word`.
pub(crate) fn work_for<T: Send>(
    py: Python<'_>,
    word: &Word,
    task: impl FnOnce() -> fast_slate::Result<T> + Send,
) -> PyResult<T> {
    let done = told(py, word, || interruptible(listening(word), task));
    word.heard(done)
}

/// True once a signal has come, or Python has said so otherwise; for [`interruptible`].
pub(crate) fn listening(word: &Word) -> impl Fn() -> bool + 'static {
    let (word, heard) = (word.clone(), Cell::new(Instant::now()));
    move || {
        if heard.get().elapsed() >= LOOK {
            heard.set(Instant::now());
            let look = |py: Python<'_>| py.check_signals();
            Python::attach(look).unwrap_or_else(|exception| word.say(exception));
        }
        word.stop.load(Ordering::Relaxed)
    }
}

/// Does `task`, which looks at signals itself, without the GIL. What a signal raises while a message is handed
/// on is said to `word`.
pub(crate) fn told<T: Send>(
    py: Python<'_>,
    word: &Word,
    task: impl FnOnce() -> fast_slate::Result<T> + Send,
) -> PyResult<T> {
    require_own_process()?;
    let logger = Logger(word.clone());
    py.detach(|| tracing::subscriber::with_default(logger, task)).map_err(exception)
}

/// Hands the library's messages to the logger `fast_slate` of Python's `logging`.
struct Logger(Word);

impl Subscriber for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with("fast_slate")
            && *metadata.level() <= Level::INFO
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let message = in_arguments(message.0);
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            _ => "info",
        };
        Python::attach(|py| {
            let logged = py
                .import("logging")
                .and_then(|logging| logging.call_method1("getLogger", ("fast_slate",)))
                .and_then(|logger| logger.call_method1(level, ("%s", message)));
            // Nobody can be told that logging failed; but Ctrl-C is no failure of it.
            if let Err(exception) = logged
                && !exception.is_instance_of::<PyException>(py)
            {
                self.0.say(exception);
            }
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}
