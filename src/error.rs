//! The library's one error type, which becomes one line for the user. Every variant names the file or
//! the setting at fault, what was expected, what was found, and, where it is not obvious, what to do.

use std::path::{Path, PathBuf};

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong on a user's input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An I/O error; `fs-err` has put the path into its message.
    #[error(transparent)]
    Io(#[from] std::io::Error),

    /// A file that exists but does not hold what it should.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was expected, what was found, what to do.
        problem: String,
    },

    /// A table without a column that was asked for.
    #[error("{}: no column `{column}`; {}", path.display(), the_columns(path, available))]
    MissingColumn {
        /// The table.
        path: PathBuf,
        /// The column asked for.
        column: String,
        /// The columns there are.
        available: Vec<String>,
    },

    /// One cell of a table that cannot be read.
    #[error("{}: row {row}: column `{column}`: expected {expected}, found `{}`", path.display(), shown(found))]
    Cell {
        /// The table.
        path: PathBuf,
        /// Row number, the first data row being 1.
        row: u64,
        /// The column.
        column: String,
        /// What a cell of this column holds.
        expected: &'static str,
        /// What this cell holds.
        found: String,
    },

    /// A row of a table that cannot be read as one.
    #[error("{}: row {row}: {problem}", path.display())]
    Row {
        /// The table.
        path: PathBuf,
        /// Row number, the first data row being 1.
        row: u64,
        /// What is wrong with the row.
        problem: String,
    },

    /// More bad rows than may be skipped.
    #[error(
        "{problem}; {allowed} rows before it were skipped, the most that may be (--skip-bad-rows)"
    )]
    TooManyBadRows {
        /// The most rows that may be skipped.
        allowed: u64,
        /// The error of the next row.
        problem: Box<Error>,
    },

    /// A preparation step that leaves nothing.
    #[error("{}: {filter} leaves none of the {before}; change it with {knob}", path.display())]
    NothingLeft {
        /// The input.
        path: PathBuf,
        /// The filter, in words, with its value.
        filter: String,
        /// What the filter was given, in words.
        before: String,
        /// The option that sets the filter.
        knob: &'static str,
    },

    /// A slate longer than the actions it may choose from.
    #[error("{}", slate_size_problem(*slate_size, *available, why))]
    SlateTooLarge {
        /// K.
        slate_size: usize,
        /// Number of actions to choose from.
        available: usize,
        /// Why there are so few, or nothing.
        why: String,
    },

    /// A matrix whose shape does not fit.
    #[error("{what}: expected shape {expected}, found {found}")]
    Shape {
        /// Which matrix.
        what: String,
        /// The shape it should have.
        expected: String,
        /// The shape it has.
        found: String,
    },

    /// A number that is NaN or infinite.
    #[error("{what}: row {}, column {} is {value}, expected a finite number", row + 1, column + 1)]
    NotFinite {
        /// Which matrix.
        what: String,
        /// Row, from 0; the message counts from 1.
        row: usize,
        /// Column, from 0; the message counts from 1.
        column: usize,
        /// The value.
        value: f32,
    },

    /// A setting whose value cannot be used.
    #[error("setting `{key}`: {problem}")]
    Setting {
        /// The dotted key.
        key: String,
        /// What is wrong with the value and what to do.
        problem: String,
    },

    /// A key that no setting has.
    #[error("no setting `{key}`; the nearest are {}", nearest.join(", "))]
    UnknownSetting {
        /// The key given.
        key: String,
        /// Keys that look like it.
        nearest: Vec<String>,
    },

    /// A backend that this build or this machine does not have.
    #[error("device `{device}`: {problem}")]
    Device {
        /// The name asked for.
        device: String,
        /// Why it cannot be used and what to do.
        problem: String,
    },

    /// Long work that somebody asked to end.
    #[error("interrupted")]
    Interrupted,

    /// A resumed run whose settings differ from those it was started with.
    #[error(
        "{}: resuming with other settings would change the run's path: {}; \
         resume with what it was started with, or start a new run",
        path.display(), differences.join("; ")
    )]
    Changed {
        /// The run folder.
        path: PathBuf,
        /// `key: was → is`, one each.
        differences: Vec<String>,
    },

    /// An identifier that the catalogue or the users do not have.
    #[error("{}: no {kind} `{id}`{}", path.display(), who_else(kind))]
    UnknownId {
        /// The table that was searched.
        path: PathBuf,
        /// `user` or `item`.
        kind: &'static str,
        /// The identifier.
        id: String,
    },

    /// A row that a log does not take.
    #[error("log row `{id}`: {problem}")]
    Record {
        /// The id of the request or event.
        id: String,
        /// What was expected, what was found.
        problem: String,
    },

    /// A log whose disk is slower than its rows come. Nothing of the rows was written.
    #[error("{}: the log is busy: {waiting} bytes wait for the disk; try again", path.display())]
    Busy {
        /// The log's folder.
        path: PathBuf,
        /// Bytes that wait.
        waiting: usize,
    },

    /// A failure that a library reports in its own words.
    #[error("{context}: {message}")]
    Library {
        /// What was being done, to which file.
        context: String,
        /// The library's message.
        message: String,
    },
}

impl Error {
    /// A [`Error::File`] for `path`.
    pub(crate) fn file(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::File { path: path.into(), problem: problem.into() }
    }

    /// A [`Error::Setting`] for `key`.
    pub(crate) fn setting(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Setting { key: key.into(), problem: problem.into() }
    }

    /// Says in which step a number appeared that is not finite.
    pub(crate) fn in_step(self, step: u64) -> Self {
        match self {
            Self::NotFinite { what, row, column, value } => {
                Self::NotFinite { what: format!("step {step}: {what}"), row, column, value }
            }
            other => other,
        }
    }

    /// A [`Error::Library`]: `message` is what the library said while reading the file.
    pub(crate) fn reading(path: &Path, message: impl std::fmt::Display) -> Self {
        Self::library(format!("reading {}", path.display()), message)
    }

    /// A [`Error::Library`]: `message` is what the library said while writing the file.
    pub(crate) fn writing(path: &Path, message: impl std::fmt::Display) -> Self {
        Self::library(format!("writing {}", path.display()), message)
    }

    /// A [`Error::Library`]: `message` is what the library said while doing `context`.
    pub(crate) fn library(context: impl Into<String>, message: impl std::fmt::Display) -> Self {
        Self::Library { context: context.into(), message: one_line(&message.to_string()) }
    }
}

/// Text of strangers, in one line that no terminal obeys.
pub(crate) fn shown(text: &str) -> String {
    let shown = |char: char| {
        if char.is_control() { char.escape_default().to_string() } else { char.into() }
    };
    text.chars().map(shown).collect()
}

/// The first of `names`, each cut, and the number of the others.
pub(crate) fn listed(names: &[String]) -> String {
    const NAMES: usize = 30;
    const LETTERS: usize = 60;
    let cut = |name: &String| match name.char_indices().nth(LETTERS) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.clone(),
    };
    let more = match names.len().saturating_sub(NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    shown(&names.iter().take(NAMES).map(cut).collect::<Vec<_>>().join(", ")) + &more
}

/// The columns that there are, and why they are one or numbers, perhaps.
pub(crate) fn the_columns(path: &Path, available: &[String]) -> String {
    let shown = listed(available);
    let is_text = path.extension().is_none_or(|kind| kind != "parquet");
    match available {
        [only] if only.contains([',', ';', '\t', '|']) => format!(
            "the only column is {shown}: in a .csv file `,` stands between fields, in a .tsv file a tab"
        ),
        _ if is_text && available.iter().all(|name| name.parse::<f64>().is_ok()) => format!(
            "the first row names the columns, and it holds {shown}: put a row of names before it"
        ),
        _ => format!("the columns are {shown}"),
    }
}

/// Why there may be no such user, and what to do.
fn who_else(kind: &str) -> &'static str {
    if kind == "user" {
        "; users with few items are left out (--min-user-interactions), and for anybody else there is --items"
    } else {
        ""
    }
}

fn slate_size_problem(slate_size: usize, available: usize, why: &str) -> String {
    if slate_size == 0 {
        return "a slate of 0 actions was asked for, expected at least 1 (`slate_size`)".to_owned();
    }
    format!(
        "a slate of {slate_size} actions was asked for, but only {available} can be chosen{why}; \
         lower `slate_size` (--slate-size)"
    )
}

/// The problem that `toml` found in `text`, in one line; `toml` itself writes several.
pub(crate) fn toml_problem(error: &toml::de::Error, text: &str) -> String {
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => {
            format!("line {}: {}", before.matches('\n').count() + 1, one_line(error.message()))
        }
        None => one_line(&error.to_string()),
    }
}

fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(", ")
}
