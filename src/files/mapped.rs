//! A file → its bytes, which the system reads when somebody looks at them, keeps once for all processes
//! and may drop again.
#![allow(unsafe_code, reason = "mapping a file is a promise that no compiler can check")]

use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

use super::open_regular;
use crate::error::Result;

/// The bytes of a file that nobody changes while it is mapped. A file that becomes shorter ends the
/// process when its lost bytes are read; one that is replaced by a rename stays what it was.
#[derive(Debug)]
pub(crate) struct Mapped(Mmap);

impl Mapped {
    /// Maps a regular file.
    ///
    /// # Errors
    /// As [`open_regular`], or an I/O error.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = open_regular(path)?;
        // SAFETY: the caller has been told that nobody may change the file; this crate itself writes
        // files beside their name and renames them.
        Ok(Self(unsafe { Mmap::map(file.file()) }?))
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
