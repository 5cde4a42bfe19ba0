//! Numbers of the host in, tensors out, and back. What comes back is waited for.

use std::fmt::Debug;

use burn::tensor::kind::Basic;
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// Host → device copy of `[B, D]`.
#[must_use]
pub fn to_device(matrix: &Matrix, device: &Device) -> Tensor<2> {
    rows_to_device(matrix.as_slice(), matrix.cols(), device)
}

/// Host → device copy of whole rows of `cols` numbers.
pub(crate) fn rows_to_device(rows: &[f32], cols: usize, device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(rows.to_vec(), [rows.len() / cols, cols]), device)
}

/// Host → device copy of a list.
pub(crate) fn list_to_device(list: &[i32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::from(list), device)
}

/// Device → host copy of `[B, L]`; waits for the device.
///
/// # Errors
/// [`Error::Library`] when the device fails.
pub fn to_host(tensor: Tensor<2>) -> Result<Matrix> {
    let [_, cols] = tensor.dims();
    Matrix::new(floats(tensor)?, cols)
}

/// Device → host copy of all numbers; waits for the device.
pub(crate) fn floats<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>> {
    data(tensor)?.try_into_vec().map_err(|error| failed(&error))
}

/// Device → host copy of a list; waits for the device.
pub(crate) fn integers(list: Tensor<1, Int>) -> Result<Vec<i32>> {
    data(list)?.convert::<i32>().try_into_vec().map_err(|error| failed(&error))
}

/// Device → host copy of whatever numbers; waits for the device.
pub(crate) fn data<const D: usize, K: Basic>(tensor: Tensor<D, K>) -> Result<TensorData> {
    tensor.try_into_data().map_err(|error| failed(&error))
}

/// The error of a device that did not give an answer.
pub(crate) fn failed(error: &dyn Debug) -> Error {
    Error::library("reading from the device", format!("{error:?}"))
}
