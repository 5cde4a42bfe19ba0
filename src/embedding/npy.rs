//! A `.npy` file of NumPy → a matrix.

use std::io::Read as _;
use std::path::Path;

use super::tensors::{finite, matrix_shape, read};
use crate::error::{Error, Result};
use crate::matrix::Matrix;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads a matrix `[P, L]` of `f4` or `f8`, in either order of bytes and of rows and columns.
///
/// # Errors
/// [`Error::File`] for a damaged file or other elements, [`Error::Shape`] for no matrix,
/// [`Error::NotFinite`] at the first NaN or infinity.
#[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of β")]
pub(super) fn matrix(path: &Path) -> Result<Matrix> {
    let damaged = |problem: &str| Error::file(path, format!("is no .npy file: {problem}"));
    let mut file = fs_err::File::open(path)?;
    let bytes = file.metadata()?.len();
    // The magic bytes, two bytes of the version, and the header's length.
    let mut start = [0; 10];
    file.read_exact(&mut start).map_err(|_| damaged("it is too short"))?;
    let mut length = u32::from(u16::from_le_bytes([start[8], start[9]]));
    let mut data = start.len() as u64;
    if start[6] > 1 {
        let mut upper = [0; 2];
        file.read_exact(&mut upper).map_err(|_| damaged("it is too short"))?;
        length |= u32::from(u16::from_le_bytes(upper)) << 16;
        data += 2;
    }
    let mut header = Vec::new();
    (&mut file).take(length.into()).read_to_end(&mut header)?;
    data += header.len() as u64;
    let header = String::from_utf8_lossy(&header);
    let header = Some(&*header).filter(|_| start.starts_with(MAGIC)).and_then(Header::of);
    let header = header.ok_or_else(|| damaged("its header names no type, order and shape"))?;
    if !["<f4", ">f4", "<f8", ">f8"].contains(&header.kind) {
        let problem = format!("holds '{}', expected 'f4' or 'f8': save it as float32", header.kind);
        return Err(Error::file(path, problem));
    }
    let [rows, cols] = matrix_shape(path, &header.shape)?;
    let size: usize = if header.kind.ends_with('8') { 8 } else { 4 };
    let fits = |count: &usize| {
        let needed = count.checked_mul(size);
        needed.is_some_and(|needed| needed as u64 <= bytes.saturating_sub(data))
    };
    let Some(count) = rows.checked_mul(cols).filter(fits) else {
        let shape = header.shape;
        return Err(damaged(&format!("it has {bytes} bytes, too few for the shape {shape:?}")));
    };
    let numbers = match header.kind {
        "<f4" => read(file, count, f32::from_le_bytes),
        ">f4" => read(file, count, f32::from_be_bytes),
        "<f8" => read(file, count, |bytes| f64::from_le_bytes(bytes) as f32),
        _ => read(file, count, |bytes| f64::from_be_bytes(bytes) as f32),
    };
    let mut numbers = numbers?;
    if header.columns_first {
        let stored = std::mem::take(&mut numbers);
        numbers = (0..count).map(|at| stored[at % cols * rows + at / cols]).collect();
    }
    finite(path, Matrix::new(numbers, cols)?)
}

/// The Python dictionary at the beginning of a file.
struct Header<'a> {
    /// As NumPy writes it: `<f4` is a little-endian float of 4 bytes.
    kind: &'a str,
    columns_first: bool,
    shape: Vec<usize>,
}

impl<'a> Header<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let value =
            |key: &str| Some(text.split_once(&format!("'{key}':"))?.1.trim_start_matches(' '));
        let shape = value("shape")?.strip_prefix('(')?.split_once(')')?.0;
        let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
        Some(Self {
            kind: value("descr")?.strip_prefix('\'')?.split_once('\'')?.0,
            columns_first: value("fortran_order")?.starts_with("True"),
            shape: sizes.map(str::parse).collect::<Result<_, _>>().ok()?,
        })
    }
}
