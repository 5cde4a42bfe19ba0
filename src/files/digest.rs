//! Files and bytes in, digests in hex out.

use std::io::Read as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::open_regular;
use crate::error::Result;

/// SHA-256 of bytes that come piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest in hex.
    pub(crate) fn hex(self) -> String {
        hex(&self.0.finalize())
    }
}

/// SHA-256 of a regular file, in hex.
///
/// # Errors
/// As [`open_regular`].
pub fn digest_file(path: &Path) -> Result<String> {
    let mut hasher = Hasher::default();
    let mut reader = open_regular(path)?;
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            return Ok(hasher.hex());
        }
        hasher.update(&buffer[..read]);
    }
}

/// SHA-256 of bytes, in hex.
#[must_use]
pub fn digest_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Passes the bytes of a regular file to `each`, piece by piece, and returns their BLAKE3 digest, in
/// hex. The file is read once; all cores hash.
pub(crate) fn blake3_pass(path: &Path, mut each: impl FnMut(&[u8])) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut reader = open_regular(path)?;
    let mut buffer = vec![0_u8; 1 << 23];
    loop {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            return Ok(hasher.finalize().to_hex().to_string());
        }
        hasher.update_rayon(&buffer[..read]);
        each(&buffer[..read]);
    }
}

/// BLAKE3 of bytes, in hex.
pub(crate) fn blake3_bytes(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Bytes in hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
