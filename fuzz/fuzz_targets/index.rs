//! A bundle's graph, with the digest that belongs to it: what is not sound must not reach usearch.
#![no_main]

use std::sync::LazyLock;

use fast_slate::bundle::{Options, Recommender, Who};
use fast_slate::device;
use fast_slate_fuzz::{copy_of, limited, replace};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static PLACE: LazyLock<TempDir> = LazyLock::new(|| copy_of("bundle"));

fuzz_target!(|bytes: &[u8]| {
    let bundle = PLACE.path();
    replace(bundle, "index.usearch", bytes);
    let device = device::choose(None).unwrap().device;
    limited(bytes.len() + (1 << 20), || {
        if let Ok(recommender) = Recommender::open(bundle, &device) {
            let _ =
                recommender.recommend(&[Who::Context(vec![1.0; 8]).into()], &Options::default());
        }
    });
});
