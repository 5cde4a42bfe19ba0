//! The library's errors → Python's exceptions, in one line that names arguments instead of flags.

use std::path::Path;

use fast_slate::Error;
use pyo3::exceptions::{PyFileNotFoundError, PyKeyError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// What the command line calls an argument, and its name here; the longer of two that begin alike
/// comes first, and a phrase before its words.
const NAMES: [(&str, &str); 32] = [
    ("--embeddings svd --latent-dim", "embeddings=\"svd\" with a prepare.latent_dim of"),
    (
        "`slate prepare` chooses again with --reward and --slate-size",
        "`prepare` chooses again with reward= and slate_size=",
    ),
    ("`slate_size` (--slate-size)", "slate_size="),
    ("--user-column", "user="),
    ("--item-column", "item="),
    ("--rating-column", "weight="),
    ("--time-column NAME", "time="),
    ("--time-column", "time="),
    ("--user-features FILE", "user_features="),
    ("--min-rating", "settings={'prepare.min_rating': …}"),
    ("--min-user-interactions", "settings={'prepare.min_user_interactions': …}"),
    ("--min-item-interactions", "settings={'prepare.min_item_interactions': …}"),
    ("--skip-bad-rows", "settings={'prepare.skip_bad_rows': …}"),
    ("--max-unpacked-mib", "settings={'prepare.max_unpacked_mib': …}"),
    ("--rows", "settings={'prepare.rows': …}"),
    (
        "go on with --resume, or give another --out",
        "go on with resume=True, or give another run_dir",
    ),
    ("--slate-size", "slate_size="),
    ("--embedding-ids", "the ids of item_embeddings="),
    ("--missing-embeddings zero", "settings={'prepare.missing_embeddings': 'zero'}"),
    ("--latent-dim", "settings={'prepare.latent_dim': …}"),
    ("--iterations", "settings={'prepare.iterations': …}"),
    ("--regularization", "settings={'prepare.regularization': …}"),
    ("--confidence", "settings={'prepare.confidence': …}"),
    ("--validation-share", "settings={'prepare.validation_share': …}"),
    ("--test-share", "settings={'prepare.test_share': …}"),
    ("has to be before --test-after", "has to be before prepare.test_after,"),
    ("--validation-after", "settings={'prepare.validation_after': …}"),
    ("--test-after", "settings={'prepare.test_after': …}"),
    (
        "; give another --out, or replace a bundle with --force",
        "; give another folder, or overwrite=True",
    ),
    (
        "; give another --out, or replace it with --force",
        "; give another folder, or overwrite=True",
    ),
    ("another --out", "another folder"),
    ("--checkpoint", "checkpoint="),
];

/// The name of a table of interactions in messages.
pub(crate) const INTERACTIONS: &str = "interactions";

/// The exception for an error of the library.
pub(crate) fn exception(error: Error) -> PyErr {
    let message = in_arguments(error.to_string());
    match error {
        Error::Io(error) => error.into(),
        Error::File { problem, .. } if problem.starts_with("another process") => {
            PyRuntimeError::new_err(message)
        }
        // Tables in memory have a name in the place of a path.
        Error::File { path, .. } if !path.exists() && path != Path::new(INTERACTIONS) => {
            PyFileNotFoundError::new_err(message)
        }
        // The table is one of the library's own, perhaps in a folder that nobody has named.
        Error::UnknownId { kind, id, .. } => {
            PyKeyError::new_err(format!("{kind}s: no {kind} `{id}`"))
        }
        Error::MissingColumn { .. } => PyKeyError::new_err(message),
        Error::Device { .. } | Error::Library { .. } | Error::Busy { .. } => {
            PyRuntimeError::new_err(message)
        }
        _ => PyValueError::new_err(message),
    }
}

/// The exception for an error of a request, whose arguments have other names in a server.
pub(crate) fn of_request(error: Error) -> PyErr {
    match error {
        Error::Setting { key, problem } => {
            let argument = match key.as_str() {
                "allow" => "candidates",
                "user" => "users",
                other => other,
            };
            wrong(argument, in_arguments(problem))
        }
        Error::SlateTooLarge { .. } => {
            wrong("k", in_arguments(error.to_string()).replace("slate_size=", "k="))
        }
        other => exception(other),
    }
}

/// A message that names arguments where the library's names flags.
pub(crate) fn in_arguments(message: String) -> String {
    NAMES.iter().fold(message, |message, (flag, name)| message.replace(flag, name))
}

/// A [`PyValueError`] that names the argument.
pub(crate) fn wrong(argument: &str, problem: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{argument}: {problem}"))
}
