//! Settings: a file of them, and each of its lines as `--set` takes it.
#![no_main]

use std::sync::LazyLock;

use fast_slate::settings::{Preset, SettingsBuilder};
use fast_slate_fuzz::{folder, limited, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static PLACE: LazyLock<TempDir> = LazyLock::new(folder);

fuzz_target!(|bytes: &[u8]| {
    let path = PLACE.path().join("settings.toml");
    write(&path, bytes);
    limited(bytes.len(), || {
        let fresh = || SettingsBuilder::new(&Preset::Default.settings()).unwrap();
        let built = fresh().file(&path).and_then(SettingsBuilder::build);
        if let Ok(settings) = built {
            // What was accepted is written and read as it was.
            let again = SettingsBuilder::new(&settings).unwrap().build().unwrap();
            assert_eq!(format!("{again:?}"), format!("{settings:?}"));
        }
        for line in String::from_utf8_lossy(bytes).lines() {
            let _ = fresh().assignment(line).and_then(SettingsBuilder::build);
        }
    });
});
