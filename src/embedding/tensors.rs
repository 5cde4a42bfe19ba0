//! Writes tensors to safetensors files and reads them back in pieces, so that β of a large catalogue is
//! in memory once.

use std::io::{Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensors};

use crate::error::{Error, Result};
use crate::files::{Mapped, write_atomic};
use crate::matrix::{Matrix, in_bytes};

/// Bytes at the start of the file that hold the length of the header.
const LENGTH: usize = size_of::<u64>();
/// The limit of the format, in bytes.
const LONGEST_HEADER: u64 = 100_000_000;

/// A tensor to write: its name, shape and numbers.
pub(crate) type Named<'a> = (&'a str, Vec<usize>, &'a [f32]);

/// The numbers of a tensor in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored {
    /// As they are.
    F32,
    /// Times a power of two that brings them into the range of f16.
    F16(f32),
}

/// Writes `tensors` as f32, in the order given.
pub(crate) fn write(path: &Path, tensors: &[Named<'_>]) -> Result<()> {
    let tensors: Vec<_> = tensors.iter().map(|tensor| (tensor.clone(), Stored::F32)).collect();
    write_as(path, &tensors)
}

/// Writes `tensors`, each in its precision, in the order given.
pub(crate) fn write_as(path: &Path, tensors: &[(Named<'_>, Stored)]) -> Result<()> {
    let library = |error: &dyn std::fmt::Display| Error::writing(path, error);
    let mut end = 0;
    let infos = tensors.iter().map(|((name, shape, numbers), stored)| {
        let start = end;
        let (dtype, size) = match stored {
            Stored::F32 => (Dtype::F32, size_of::<f32>()),
            Stored::F16(_) => (Dtype::F16, size_of::<f16>()),
        };
        end += size * numbers.len();
        let data_offsets = (start, end);
        ((*name).to_owned(), TensorInfo { dtype, shape: shape.clone(), data_offsets })
    });
    let metadata = Metadata::new(None, infos.collect()).map_err(|error| library(&error))?;
    let mut header = serde_json::to_vec(&metadata).map_err(|error| library(&error))?;
    header.resize(header.len().next_multiple_of(LENGTH), b' ');
    write_atomic(path, |writer| {
        writer.write_all(&(header.len() as u64).to_le_bytes())?;
        writer.write_all(&header)?;
        for ((_, _, numbers), stored) in tensors {
            match stored {
                Stored::F32 => in_bytes(numbers, |bytes| writer.write_all(bytes))?,
                Stored::F16(scale) => {
                    for numbers in numbers.chunks(1 << 14) {
                        let halves = numbers.iter().map(|value| f16::from_f32(value * scale));
                        let bytes: Vec<u8> = halves.flat_map(f16::to_le_bytes).collect();
                        writer.write_all(&bytes)?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// The tensors in the bytes of a file.
pub(crate) struct Tensors<'a> {
    path: &'a Path,
    content: SafeTensors<'a>,
    mapped: Option<&'a Arc<Mapped>>,
}

impl<'a> Tensors<'a> {
    /// Parses the `bytes` of the file at `path`.
    pub(crate) fn parse(path: &'a Path, bytes: &'a [u8]) -> Result<Self> {
        let content = SafeTensors::deserialize(bytes)
            .map_err(|error| Error::file(path, format!("is no safetensors file: {error}")))?;
        Ok(Self { path, content, mapped: None })
    }

    /// Parses a mapped file, in which tensors of f32 stay.
    pub(crate) fn of_mapped(path: &'a Path, file: &'a Arc<Mapped>) -> Result<Self> {
        Ok(Self { mapped: Some(file), ..Self::parse(path, file)? })
    }

    /// The tensor `name` `[rows, cols]`, finite, divided by `scale`; none if it is not there.
    pub(crate) fn matrix(&self, name: &str, scale: f32) -> Result<Option<Matrix>> {
        let Ok(tensor) = self.content.tensor(name) else { return Ok(None) };
        let [_, cols] = matrix_shape(self.path, tensor.shape())?;
        let factor = scale.recip();
        if let (Some(file), Dtype::F32) = (self.mapped, tensor.dtype()) {
            let start = tensor.data().as_ptr().addr() - file.as_ptr().addr();
            let bytes = start..start + tensor.data().len();
            return finite(self.path, Matrix::mapped(file, bytes, cols)?).map(Some);
        }
        let numbers: Vec<f32> = match tensor.dtype() {
            Dtype::F32 => {
                let numbers = tensor.data().as_chunks().0.par_iter();
                numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect()
            }
            Dtype::F16 => {
                let numbers = tensor.data().as_chunks().0.par_iter();
                numbers.map(|bytes| f16::from_le_bytes(*bytes).to_f32() * factor).collect()
            }
            other => {
                let problem = format!("tensor `{name}` holds {other:?}, expected F32 or F16");
                return Err(Error::file(self.path, problem));
            }
        };
        finite(self.path, Matrix::new(numbers, cols)?).map(Some)
    }
}

/// A file whose header has been read and fits its length.
#[derive(Clone, Debug)]
pub(crate) struct TensorFile {
    path: PathBuf,
    metadata: Metadata,
    /// Offset of the first number.
    start: u64,
}

impl TensorFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let damaged = |problem: &dyn std::fmt::Display| {
            Error::file(path, format!("is no safetensors file: {problem}"))
        };
        let mut file = fs_err::File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut length = [0; LENGTH];
        file.read_exact(&mut length).map_err(|_| damaged(&"it is too short"))?;
        let length = u64::from_le_bytes(length);
        let start = length.saturating_add(LENGTH as u64);
        if start > bytes || length > LONGEST_HEADER {
            return Err(damaged(&"its header has no end"));
        }
        let mut header = Vec::new();
        file.take(length).read_to_end(&mut header)?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|error| damaged(&error))?;
        let expected = start.saturating_add(metadata.data_len() as u64);
        if expected != bytes {
            return Err(damaged(&format!("it has {bytes} bytes, its header asks for {expected}")));
        }
        Ok(Self { path: path.to_owned(), metadata, start })
    }

    /// The shape of the tensor `name`, if there is one.
    pub(crate) fn shape(&self, name: &str) -> Option<&[usize]> {
        self.metadata.info(name).map(|info| info.shape.as_slice())
    }

    /// `[rows, cols]` of the tensor `name`, which has at least one number.
    pub(crate) fn matrix_shape(&self, name: &str) -> Result<[usize; 2]> {
        let shape = &self.info(name)?.shape;
        matrix_shape(&self.path, shape)
    }

    /// The tensor `name`, `[rows, cols]`, finite.
    pub(crate) fn matrix(&self, name: &str) -> Result<Matrix> {
        let [_, cols] = self.matrix_shape(name)?;
        finite(&self.path, Matrix::new(self.numbers(name)?, cols)?)
    }

    /// The numbers of a tensor of any floating point type, as f32.
    #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of β")]
    pub(crate) fn numbers(&self, name: &str) -> Result<Vec<f32>> {
        let info = self.info(name)?;
        let mut file = fs_err::File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.start + info.data_offsets.0 as u64))?;
        let count = info.shape.iter().product();
        let numbers = match info.dtype {
            Dtype::F32 => read(file, count, f32::from_le_bytes),
            Dtype::F64 => read(file, count, |bytes| f64::from_le_bytes(bytes) as f32),
            Dtype::F16 => read(file, count, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Dtype::BF16 => read(file, count, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            other => {
                let problem =
                    format!("tensor `{name}` holds {other:?}, expected F32 (or F64, F16, BF16)");
                return Err(Error::file(&self.path, problem));
            }
        };
        Ok(numbers?)
    }

    /// The numbers of a tensor that are finite and at least 0.
    pub(crate) fn amounts(&self, name: &str) -> Result<Vec<f32>> {
        let numbers = self.numbers(name)?;
        let is_amount = |value: &f32| value.is_finite() && *value >= 0.0;
        match numbers.iter().position(|value| !is_amount(value)) {
            None => Ok(numbers),
            Some(at) => {
                let (place, found) = (at + 1, numbers[at]);
                let problem = format!(
                    "number {place} of tensor `{name}` is {found}, expected a finite number of at least 0"
                );
                Err(Error::file(&self.path, problem))
            }
        }
    }

    fn info(&self, name: &str) -> Result<&TensorInfo> {
        self.metadata.info(name).ok_or_else(|| {
            let names = self.metadata.offset_keys().join(", ");
            Error::file(&self.path, format!("has no tensor `{name}`; its tensors are: {names}"))
        })
    }
}

/// `[rows, cols]` of a matrix that has rows and columns.
pub(super) fn matrix_shape(path: &Path, shape: &[usize]) -> Result<[usize; 2]> {
    match *shape {
        [rows, cols] if rows > 0 && cols > 0 => Ok([rows, cols]),
        _ => Err(Error::Shape {
            what: path.display().to_string(),
            expected: "[P, L]".into(),
            found: format!("{shape:?}"),
        }),
    }
}

/// The matrix, unless it holds a number that is NaN or infinite.
pub(super) fn finite(path: &Path, matrix: Matrix) -> Result<Matrix> {
    matrix.require_finite(&path.display().to_string())?;
    Ok(matrix)
}

/// Reads `count` numbers of `N` bytes each.
pub(super) fn read<const N: usize>(
    mut file: fs_err::File,
    count: usize,
    number: impl Fn([u8; N]) -> f32,
) -> std::io::Result<Vec<f32>> {
    const NUMBERS: usize = 1 << 14;
    let mut numbers = Vec::with_capacity(count);
    let mut chunk = vec![0; NUMBERS * N];
    while numbers.len() < count {
        let chunk = &mut chunk[..N * NUMBERS.min(count - numbers.len())];
        file.read_exact(chunk)?;
        numbers.extend(chunk.as_chunks::<N>().0.iter().map(|bytes| number(*bytes)));
    }
    Ok(numbers)
}
