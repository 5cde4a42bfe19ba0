//! The grid of a comparison.
#![no_main]

use std::sync::LazyLock;

use fast_slate::experiment::Grid;
use fast_slate_fuzz::{folder, limited, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static PLACE: LazyLock<TempDir> = LazyLock::new(folder);

fuzz_target!(|bytes: &[u8]| {
    let path = PLACE.path().join("grid.toml");
    write(&path, bytes);
    limited(bytes.len(), || {
        if let Ok(grid) = Grid::read(&path, "quick") {
            for row in grid.rows() {
                let _ = row.added();
            }
        }
    });
});
