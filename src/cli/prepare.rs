//! `slate prepare`.

use anyhow::Result;

use super::Report;
use super::args::PrepareArgs;
use crate::dataset::{Filters, Source, SplitSettings};
use crate::embedding::SvdSettings;
use crate::prepared::{EmbeddingSource, PrepareSettings, Prepared};
use crate::settings::Preset;

pub(super) fn run(args: &PrepareArgs) -> Result<Report> {
    let prepared = Prepared::create(&args.source(), &args.settings(), &args.out, args.force)?;
    let audit = prepared.build_index(&args.preset.settings())?;
    let text = format!("{}\n{audit}\nprepared {}", prepared.manifest().statistics, args.out.display());
    Report::new(prepared.manifest(), text)
}

impl PrepareArgs {
    fn source(&self) -> Source {
        Source {
            path: self.input.clone(),
            user_column: self.user_column.clone(),
            item_column: self.item_column.clone(),
            rating_column: self.rating_column.clone(),
        }
    }

    fn settings(&self) -> PrepareSettings {
        let defaults = PrepareSettings::preset(self.preset);
        todo!()
    }
}
