//! The numbers of a matrix: its own, or those of a mapped file.

use std::fmt::{self, Debug};
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::files::Mapped;

/// Numbers that become the matrix's own when they are changed.
#[derive(Clone)]
pub(super) enum Numbers {
    Own(Vec<f32>),
    /// Bytes of a file that [`Numbers::mapped`] has looked at.
    Mapped(Arc<Mapped>, Range<usize>),
}

impl Numbers {
    /// The numbers in `bytes` of `file`, little endian; copied where this machine reads them otherwise.
    pub(super) fn mapped(file: &Arc<Mapped>, bytes: Range<usize>) -> Self {
        let found = &file[bytes.clone()];
        if cfg!(target_endian = "little") && bytemuck::try_cast_slice::<u8, f32>(found).is_ok() {
            return Self::Mapped(Arc::clone(file), bytes);
        }
        let numbers = found.as_chunks().0.iter();
        Self::Own(numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    pub(super) fn own(&mut self) -> &mut Vec<f32> {
        if let Self::Mapped(..) = self {
            *self = Self::Own(self.to_vec());
        }
        match self {
            Self::Own(numbers) => numbers,
            Self::Mapped(..) => unreachable!("they were copied above"),
        }
    }
}

impl Deref for Numbers {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Own(numbers) => numbers,
            Self::Mapped(file, bytes) => bytemuck::cast_slice(&file[bytes.clone()]),
        }
    }
}

impl PartialEq for Numbers {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
