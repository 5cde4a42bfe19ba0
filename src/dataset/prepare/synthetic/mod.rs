//! Settings → sessions of users whose taste is known, for when there is no log at hand.
//!
//! Actions belong to topics, and neighbouring topics to a neighbourhood. A user likes two or three
//! topics of one neighbourhood; most of their actions come from these topics, the rest from
//! everywhere, and within either popularity falls as 1/rank. So a user's hidden actions can be
//! told from the observed ones, far better than by popularity, and the matrix of interactions has
//! a low rank. Time is proportional to the interactions.
//!
//! [`synthetic()`] generates sessions in memory. [`synthesize`] writes logs of any size, with every
//! action at least once, and says how much the best decision earns (`oracle`).

mod log;
mod memory;
mod model;
mod oracle;

use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::estimate::Estimate;
use crate::files::write_atomic;
use log::{Format, Log};

pub use log::{PAPER_SHAPES, Shape, SyntheticLog};
pub(crate) use memory::Newcomer;
pub use memory::{SyntheticSettings, synthetic};
pub(crate) use model::{Model, Taste};

/// What was generated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Synthesized {
    /// U.
    pub users: u32,
    /// P; each occurs.
    pub actions: u32,
    /// Rows of the file.
    pub interactions: usize,
    /// `interactions / (U · P)`, a share.
    pub density: f64,
    /// The expected reward of the best slate of 5 for somebody who knows each user's topics and
    /// observed actions, observed actions excluded. No policy earns more in expectation, whether
    /// or not it may show observed actions: they earn nothing.
    pub ceiling: Estimate,
    /// The expected reward of the 5 most popular actions that the user has not observed.
    pub popularity: Estimate,
}

/// Generates a log and writes it to `path`, a `.parquet` or `.csv`: one row for each interaction,
/// with the columns `user_id` and `item_id`, integers from 1, users ascending. With `replace`, an
/// existing file is replaced. The same settings give the same file on any number of threads.
///
/// Takes O(interactions) time and O(U + P) memory.
///
/// # Errors
/// [`Error::Setting`] for a log that cannot exist, [`Error::File`] for a `path` that exists already
/// or has another extension, or an error of writing the file; nothing is left under its name then.
pub fn synthesize(log: &SyntheticLog, path: &Path, replace: bool) -> Result<Synthesized> {
    let format = Format::of(path)?;
    if path.exists() && !replace {
        let problem = "is there already; give another --out, or replace it with --force";
        return Err(Error::file(path, problem));
    }
    let generated = Log::new(log)?;
    write_atomic(path, |file| generated.write(file, format, path))?;
    let Shape { users, actions, .. } = log.shape;
    let interactions = generated.interactions();
    let [ceiling, popularity] = oracle::rewards(&generated, users.min(log.ceiling_users));
    let density = interactions as f64 / (f64::from(users) * f64::from(actions));
    Ok(Synthesized { users, actions, interactions, density, ceiling, popularity })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Dataset, Filters, Source, SplitSettings, assemble, read};
    use crate::seed::Seed;

    fn small() -> SyntheticLog {
        let shape = Shape { users: 700, actions: 900, density: 0.05 };
        SyntheticLog { topics: 30, ..SyntheticLog::new(shape) }
    }

    /// The log in a file of this name, and as `slate prepare` would have it.
    fn made(log: &SyntheticLog, name: &str) -> (Synthesized, Vec<u8>, Dataset) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let made = synthesize(log, &path, false).unwrap();
        let bytes = fs_err::read(&path).unwrap();
        let source = Source {
            path,
            user_column: Some("user_id".into()),
            item_column: Some("item_id".into()),
            ..Source::default()
        };
        let interactions = read(&source, &Filters::default()).unwrap();
        (made, bytes, assemble(interactions, &SplitSettings::default()).unwrap())
    }

    #[test]
    fn a_prepared_log_has_the_shape_asked_for() {
        // The last has as many interactions as actions, so all of them are dealt.
        for (users, actions, density) in
            [(700, 900, 0.05), (300, 5000, 0.04), (50, 400, 0.05), (40, 1200, 0.025)]
        {
            let log =
                SyntheticLog { topics: 30, ..SyntheticLog::new(Shape { users, actions, density }) };
            let (made, _, dataset) = made(&log, "log.parquet");
            let statistics = &dataset.statistics;
            assert_eq!((statistics.users, statistics.actions), (users as usize, actions as usize));
            assert_eq!(statistics.interactions, made.interactions);
            assert!((statistics.density / density - 1.0).abs() < 0.005, "{statistics}");
        }
    }

    #[test]
    fn both_formats_hold_the_same_whatever_the_number_of_threads() {
        let threads = |count: usize, name: &str| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap();
            pool.install(|| made(&small(), name))
        };
        let ((one, parquet, dataset), (two, again, _)) =
            (threads(1, "log.parquet"), threads(2, "log.parquet"));
        assert_eq!(one, two);
        assert!(parquet == again, "other bytes");
        let (_, csv, of_csv) = made(&small(), "log.csv");
        assert_eq!(dataset.sessions, of_csv.sessions);
        let (csv, rows) = (String::from_utf8(csv).unwrap(), one.interactions);
        assert!(csv.starts_with("user_id,item_id\n1,"), "{}", &csv[..40]);
        assert_eq!(csv.lines().count(), 1 + rows);
        let (_, _, other) = made(&SyntheticLog { seed: Seed(1), ..small() }, "log.parquet");
        assert_ne!(dataset.sessions, other.sessions);
    }

    #[test]
    fn taste_earns_more_than_popularity() {
        let (made, ..) = made(&small(), "log.parquet");
        assert!(made.ceiling.mean > 1.3 * made.popularity.mean, "{made:?}");
    }
}
