//! Numbers of the library ↔ Python's buffer protocol. `np.asarray(array)` is a read-only view of the
//! memory here; the memory lives as long as the last view of it.

#![allow(unsafe_code, reason = "the buffer protocol is a struct of pointers")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use fast_slate::embedding::ActionEmbeddings;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The memory of an array.
enum Memory {
    Floats(Vec<f32>),
    Integers(Vec<i32>),
    Longs(Vec<i64>),
    Flags(Vec<bool>),
    Actions(Arc<ActionEmbeddings>),
}

/// Numbers in rows, for `numpy.asarray`.
#[pyclass(frozen, module = "fast_slate._native")]
pub struct Array {
    memory: Memory,
    shape: Vec<isize>,
    strides: Vec<isize>,
}

impl Array {
    fn new(memory: Memory, shape: &[usize]) -> Self {
        let shape: Vec<isize> = shape.iter().map(|&length| length.cast_signed()).collect();
        let array = Self { memory, shape, strides: Vec::new() };
        let (_, _, item) = array.bytes();
        let mut strides = vec![item; array.shape.len()];
        for axis in (1..strides.len()).rev() {
            strides[axis - 1] = strides[axis] * array.shape[axis].max(1);
        }
        Self { strides, ..array }
    }

    /// `[rows, columns]` of f32.
    pub(crate) fn floats(numbers: Vec<f32>, columns: usize) -> Self {
        let rows = numbers.len() / columns.max(1);
        Self::new(Memory::Floats(numbers), &[rows, columns])
    }

    /// `[n]` of f32.
    pub(crate) fn line(numbers: Vec<f32>) -> Self {
        let length = numbers.len();
        Self::new(Memory::Floats(numbers), &[length])
    }

    /// Numbers of users or items, `[n]` or `[n, columns]`.
    pub(crate) fn numbers(numbers: &[u32], columns: Option<usize>) -> Self {
        let numbers: Vec<i32> = numbers.iter().map(|number| number.cast_signed()).collect();
        let length = numbers.len();
        match columns {
            None => Self::new(Memory::Integers(numbers), &[length]),
            Some(columns) => {
                let rows = length / columns.max(1);
                Self::new(Memory::Integers(numbers), &[rows, columns])
            }
        }
    }

    /// `[n]` of i64.
    pub(crate) fn longs(numbers: Vec<i64>) -> Self {
        let length = numbers.len();
        Self::new(Memory::Longs(numbers), &[length])
    }

    /// `[rows, columns]` of truths.
    pub(crate) fn flags(flags: Vec<bool>, columns: usize) -> Self {
        let rows = flags.len() / columns.max(1);
        Self::new(Memory::Flags(flags), &[rows, columns])
    }

    /// β `[P, L]`, which is not copied.
    pub(crate) fn actions(actions: Arc<ActionEmbeddings>) -> Self {
        let shape = [actions.num_actions(), actions.latent_dim()];
        Self::new(Memory::Actions(actions), &shape)
    }

    /// Where the numbers are, their type as `struct` writes it, and the bytes of one.
    fn bytes(&self) -> (*const c_void, &'static CStr, isize) {
        match &self.memory {
            Memory::Floats(numbers) => (numbers.as_ptr().cast(), c"f", 4),
            Memory::Integers(numbers) => (numbers.as_ptr().cast(), c"i", 4),
            Memory::Longs(numbers) => (numbers.as_ptr().cast(), c"q", 8),
            Memory::Flags(flags) => (flags.as_ptr().cast(), c"?", 1),
            Memory::Actions(actions) => (actions.beta().as_slice().as_ptr().cast(), c"f", 4),
        }
    }
}

#[pymethods]
impl Array {
    /// # Safety
    /// `view` is Python's own struct to fill, or null.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the view is null"));
        }
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("the array is read-only; copy it to change it"));
        }
        let array = slf.get();
        let (start, format, item) = array.bytes();
        let wants = |flag: c_int| flags & flag == flag;
        let shape = array.shape.as_ptr().cast_mut();
        let strides = array.strides.as_ptr().cast_mut();
        let null: *mut c_void = std::ptr::null_mut();
        // SAFETY: `view` is not null, and Python gives it to be filled. The pointers go to memory of
        // `array`, which never changes after its construction and lives while `obj` does; nobody
        // writes through them, since the view is read-only.
        unsafe {
            (*view).buf = start.cast_mut();
            (*view).len = array.shape.iter().product::<isize>() * item;
            (*view).readonly = 1;
            (*view).itemsize = item;
            (*view).format =
                if wants(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { null.cast() };
            (*view).ndim = c_int::try_from(array.shape.len()).unwrap_or(0);
            (*view).shape = if wants(ffi::PyBUF_ND) { shape } else { null.cast() };
            (*view).strides = if wants(ffi::PyBUF_STRIDES) { strides } else { null.cast() };
            (*view).suboffsets = null.cast();
            (*view).internal = null;
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }
}

/// The numbers of a buffer and its shape.
///
/// # Errors
/// `BufferError` for numbers of another type.
pub(crate) fn numbers<T: Element>(of: &Bound<'_, PyAny>) -> PyResult<(Vec<T>, Vec<usize>)> {
    let buffer = PyBuffer::<T>::get(of)?;
    Ok((buffer.to_vec(of.py())?, buffer.shape().to_vec()))
}
