//! A segment of a log: raw bytes, or, with a first byte that is odd, a row in a frame whose checksum is
//! right. It is read, and then finished as the next writer does.
#![no_main]

use fast_slate::log::{Log, Options, Writer};
use fast_slate_fuzz::{folder, limited, write};
use libfuzzer_sys::fuzz_target;

const MAGIC: &[u8] = b"slatelog";
const FORMAT: [u8; 4] = [1, 0, 0, 0];

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
    let place = folder();
    let path = place.path().join("segment-0000000000001.rows");
    if framed % 2 == 1 {
        let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
        let frame: [&[u8]; 6] =
            [MAGIC, &FORMAT, &sum(&[MAGIC, &FORMAT]), &length, &sum(&[&length, bytes]), bytes];
        write(&path, &frame.concat());
    } else {
        write(&path, bytes);
    }
    limited(bytes.len(), || {
        let read = Log::read(&[place.path()]);
        // Writing tables is slow: only what could be read is finished.
        if let Ok(log) = read
            && log.exposures.len() + log.feedback.len() > 0
        {
            drop(Writer::open(place.path(), Options::default()));
            let tables = Log::read(&[place.path()]).expect("what was read can be finished");
            assert_eq!(tables.digest(), log.digest());
        }
    });
});
