//! A log of interactions in a Parquet file. What polars asks for is not counted, since damaged files
//! make it ask for gigabytes that it does not touch (SECURITY.md); libFuzzer limits what it really holds.
#![no_main]

use std::sync::LazyLock;

use fast_slate::dataset::{Filters, Source, read};
use fast_slate_fuzz::{catching, folder, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static PLACE: LazyLock<TempDir> = LazyLock::new(|| {
    catching();
    folder()
});

fuzz_target!(|bytes: &[u8]| {
    let path = PLACE.path().join("log.parquet");
    write(&path, bytes);
    let source = Source {
        path,
        user_column: Some("user_id".into()),
        item_column: Some("item_id".into()),
        ..Source::default()
    };
    drop(read(&source, &Filters::default()));
});
