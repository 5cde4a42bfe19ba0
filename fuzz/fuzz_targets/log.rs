//! A segment of a log: raw bytes, or, with a first byte that is odd, a row in a frame whose checksum is
//! right. It is read, and one of 64 is then finished as the next writer does, which writes tables: that is
//! slow, and the work of a dependency.
#![no_main]

use std::sync::LazyLock;

use fast_slate::log::{Log, Options, Writer};
use fast_slate_fuzz::{folder, limited, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

const MAGIC: &[u8] = b"slatelog";
const FORMAT: [u8; 4] = [1, 0, 0, 0];
const SEGMENT: &str = "segment-0000000000001.rows";

static PLACE: LazyLock<TempDir> = LazyLock::new(folder);

fn sum(bytes: &[&[u8]]) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    for bytes in bytes {
        hasher.update(bytes);
    }
    let mut sum = [0; 8];
    hasher.finalize_xof().fill(&mut sum);
    sum
}

fuzz_target!(|bytes: &[u8]| {
    let Some((framed, bytes)) = bytes.split_first() else { return };
    let segment = if framed % 2 == 1 {
        let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
        let frame: [&[u8]; 6] =
            [MAGIC, &FORMAT, &sum(&[MAGIC, &FORMAT]), &length, &sum(&[&length, bytes]), bytes];
        frame.concat()
    } else {
        bytes.to_vec()
    };
    let path = PLACE.path().join(SEGMENT);
    write(&path, &segment);
    limited(bytes.len(), || {
        let read = Log::read(&[PLACE.path()]);
        // Chosen by what is read, so that it is the same again.
        if let Ok(log) = read
            && log.exposures.len() + log.feedback.len() > 0
            && blake3::hash(&segment).as_bytes()[0] < 4
        {
            let place = folder();
            write(&place.path().join(SEGMENT), &segment);
            drop(Writer::open(place.path(), Options::default()));
            let tables = Log::read(&[place.path()]).expect("what was read can be finished");
            assert_eq!(tables.digest(), log.digest());
        }
    });
});
