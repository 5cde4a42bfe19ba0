//! The flags that say which interactions are prepared and how they are split.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum, ValueHint};

use crate::dataset::{Filters, Given, Moment, RowFilter, Source, SplitKind, SplitSettings};
use crate::prepared::Input;
use crate::seed::Seed;
use crate::settings::Preset;

#[derive(Debug, Args)]
pub(super) struct DataArgs {
    /// The log: the folder, archive or file of a known data set (see `slate datasets`), a CSV or TSV
    /// file (gzipped or not), a Parquet file, a folder of Parquet files, or a pattern in quotes such
    /// as 'log/*.csv'. Files that are split already are given with --train and --test instead.
    #[arg(value_hint = ValueHint::AnyPath)]
    input: Option<PathBuf>,
    /// The interactions to train on, where the split is given; with --test, in the place of a log.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = SPLIT)]
    train: Option<PathBuf>,
    /// The interactions to validate on, of users of --train [default: --validation-share of each
    /// user's interactions in --train].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = SPLIT)]
    validation: Option<PathBuf>,
    /// The interactions to test on, of users of --train.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = SPLIT)]
    test: Option<PathBuf>,
    /// What is held out: random (all interactions of some users) or temporal (the latest interactions
    /// of each user) [default: random].
    #[arg(long, value_name = "KIND", help_heading = SPLIT)]
    split: Option<Kind>,
    /// Test on what happened at this moment or later, a day or a time such as 2024-01-31 or
    /// 2024-01-31T17:05:00+01:00 (UTC without an offset) or a number as in --time-column, instead of on a
    /// share of each user's interactions; implies --split temporal.
    #[arg(long, value_name = "DATE", allow_negative_numbers = true, help_heading = SPLIT)]
    test_after: Option<Moment>,
    /// Validate on what happened at this moment or later, and before --test-after [default: the
    /// moment that leaves --validation-share of the interactions before --test-after].
    #[arg(long, value_name = "DATE", allow_negative_numbers = true, help_heading = SPLIT)]
    validation_after: Option<Moment>,
    /// The share of the items of a user, or of those to train on, that is observed; the rest is
    /// hidden: the latest ones with --split temporal, otherwise random ones.
    #[arg(long, default_value_t = 0.5, help_heading = SPLIT)]
    observed_share: f64,
    /// The share of the users in the validation split, or of each user's interactions where they are
    /// held out [default: 0.1].
    #[arg(long, help_heading = SPLIT)]
    validation_share: Option<f64>,
    /// The share of the users in the test split, or of each user's interactions with --split temporal
    /// [default: 0.1; temporal 0.2; 0 with --preset paper].
    #[arg(long, help_heading = SPLIT)]
    test_share: Option<f64>,
    /// The column of user ids; a known data set needs none.
    #[arg(long)]
    pub(super) user_column: Option<String>,
    /// The column of item ids; a known data set needs none.
    #[arg(long)]
    item_column: Option<String>,
    /// The column of ratings, for --min-rating.
    #[arg(long, requires = "min_rating")]
    rating_column: Option<String>,
    /// The column of times, for --split temporal and context.recency: seconds, milli-, micro- or
    /// nanoseconds since 1970 (their size tells which), places in a sequence, or days and times such as
    /// 2024-01-31 and 2024-01-31T17:05:00Z.
    #[arg(long)]
    time_column: Option<String>,
    /// The rows that count as interactions: COLUMN=VALUE, all, or known (the rule of a known data
    /// set).
    #[arg(long, default_value_t)]
    rows: RowFilter,
    /// Skip up to this many rows that cannot be read, and report how many there were. Where a quote is
    /// misplaced or not closed, each line counts as a row.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_bad_rows: u64,
    /// Refuse a packed log (.gz, or a file of a .zip) that unpacks to more than this many MiB
    /// [default: 64, or a hundred times its size].
    #[arg(long, value_name = "MIB")]
    max_unpacked_mib: Option<u64>,
    /// Keep only interactions with at least this rating.
    #[arg(long)]
    min_rating: Option<f64>,
    /// Keep only users with at least this many interactions, in --train where that is given
    /// [default: 5; 20 with --preset paper; 1 with --train].
    #[arg(long)]
    min_user_interactions: Option<u32>,
    /// Keep only items with at least this many interactions, in --train where that is given.
    #[arg(long, default_value_t = 1)]
    min_item_interactions: u32,
    /// The seed of the splits and of the embeddings.
    #[arg(long, default_value_t = 0, value_parser = recorded())]
    seed: u64,
}

/// A number that TOML can record.
pub(super) fn recorded() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(..=i64::MAX.unsigned_abs())
}

/// The heading of the flags of a split in the help.
const SPLIT: &str = "Split";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Random,
    Temporal,
}

impl DataArgs {
    pub(super) fn input(&self, preset: Preset) -> Result<Input> {
        let is_given = self.train.is_some() || self.validation.is_some() || self.test.is_some();
        match (&self.input, &self.train, &self.test) {
            (Some(log), ..) if is_given => bail!(
                "{}: a log is split here, and --train, --validation and --test name files that are \
                 split already: give one or the other",
                log.display()
            ),
            (Some(log), ..) => {
                let filters = self.filters(Filters::of(preset).min_user_interactions);
                Ok(Input::File(self.source(log.clone()), filters))
            }
            (None, Some(train), Some(test)) => {
                let (train, test) = (self.source(train.clone()), test.clone());
                let given = Given { train, validation: self.validation.clone(), test };
                Ok(Input::Given(given, self.filters(1)))
            }
            _ if is_given => bail!("a split that is given needs both --train FILE and --test FILE"),
            _ => bail!("what is to be prepared? Give a log, or --train FILE and --test FILE"),
        }
    }

    fn source(&self, path: PathBuf) -> Source {
        Source {
            path,
            user_column: self.user_column.clone(),
            item_column: self.item_column.clone(),
            rating_column: self.rating_column.clone(),
            time_column: self.time_column.clone(),
            first_times: false,
            max_unpacked_mib: self.max_unpacked_mib,
        }
    }

    fn filters(&self, min_user_interactions: u32) -> Filters {
        Filters {
            rows: self.rows.clone(),
            skip_bad_rows: self.skip_bad_rows,
            min_rating: self.min_rating,
            min_user_interactions: self.min_user_interactions.unwrap_or(min_user_interactions),
            min_item_interactions: self.min_item_interactions,
        }
    }

    pub(super) fn split(&self, preset: Preset) -> Result<SplitSettings> {
        let kind = self.kind()?;
        let default = SplitSettings::of(preset, kind);
        Ok(SplitSettings {
            kind,
            observed_share: self.observed_share,
            validation_share: self.validation_share.unwrap_or(default.validation_share),
            test_share: self.test_share.unwrap_or(default.test_share),
            seed: Seed(self.seed),
        })
    }

    /// The kind of split; fails on a flag that this kind has no use for.
    fn kind(&self) -> Result<SplitKind> {
        let kind = match (self.test_after, self.split) {
            _ if self.train.is_some() => SplitKind::Given,
            (Some(test_after), None | Some(Kind::Temporal)) => {
                SplitKind::Dates { test_after, validation_after: self.validation_after }
            }
            (None, Some(Kind::Temporal)) => SplitKind::Temporal,
            (_, None | Some(Kind::Random)) => SplitKind::Random,
        };
        let is_dates = matches!(kind, SplitKind::Dates { .. });
        for (flag, is_useless, why) in [
            (
                "--split",
                self.split.is_some() && kind == SplitKind::Given,
                "does not go with --train, whose split is given",
            ),
            (
                "--test-after",
                self.test_after.is_some() && !is_dates,
                "goes with a log and --split temporal",
            ),
            (
                "--validation-after",
                self.validation_after.is_some() && !is_dates,
                "goes with --test-after",
            ),
            (
                "--test-share",
                self.test_share.is_some() && (is_dates || kind == SplitKind::Given),
                "does not go with --test-after or --test, which say what is tested",
            ),
            (
                "--validation-share",
                self.validation_share.is_some()
                    && (self.validation_after.is_some() || self.validation.is_some()),
                "does not go with --validation-after or --validation, which say what is validated",
            ),
        ] {
            if is_useless {
                bail!("{flag} {why}");
            }
        }
        if kind.is_by_time() && self.time_column.is_none() {
            bail!(
                "a split by time needs --time-column NAME, the column that says when things happened"
            );
        }
        Ok(kind)
    }
}
