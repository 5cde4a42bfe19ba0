//! Arrow's C streams ↔ polars' tables. A stream hands over pointers to columns, so nothing is copied
//! but small headers.

#![allow(unsafe_code, reason = "a C stream is a struct of pointers")]

use std::any::Any;
use std::ffi::CStr;

use polars::prelude::*;
use polars_arrow::array::{
    DictionaryArray, DictionaryKey, FixedSizeListArray, ListArray, PrimitiveArray, StructArray,
};
use polars_arrow::datatypes::{ArrowDataType, Field as ArrowField};
use polars_arrow::ffi::{ArrowArrayStream, ArrowArrayStreamReader, export_iterator};
use polars_arrow::offset::Offsets;
use pyo3::exceptions::{
    PyKeyError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use fast_slate::dataset::Frames;

use crate::error::wrong;

/// The method by which tables are exchanged.
const STREAM: &str = "__arrow_c_stream__";

/// The name of its capsules.
const NAME: &CStr = c"arrow_array_stream";

/// The tables of an object with `__arrow_c_stream__`, with the columns that are `wanted`, or all, and
/// those that are `welcome`, where their type can be held. There is at least one table, so that the
/// columns are known.
///
/// # Errors
/// `ValueError` naming the `argument` for what is no stream of tables, or a column of a type that
/// cannot be held; whatever else the object's own stream raises.
pub(crate) fn frames(
    of: &Bound<'_, PyAny>,
    wanted: &[String],
    welcome: &[&str],
    argument: &str,
) -> PyResult<Vec<DataFrame>> {
    // pyarrow names the column of a pandas frame that it cannot convert, but not the argument.
    let capsule = of.call_method0(STREAM).map_err(|error| {
        let py = of.py();
        let is_unfit = error.is_instance_of::<PyTypeError>(py)
            || error.is_instance_of::<PyValueError>(py)
            || error.is_instance_of::<PyNotImplementedError>(py);
        if is_unfit { wrong(argument, error.value(py)) } else { error }
    })?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(NAME))?;
    // SAFETY: a capsule of this name holds an ArrowArrayStream (the Arrow PyCapsule interface). It is
    // moved out, and a released stream is left, which the capsule's destructor does not touch.
    let stream = unsafe { stream.cast::<ArrowArrayStream>().replace(ArrowArrayStream::empty()) };
    let stream = Moved(Box::new(stream));
    // A producer may ask threads that wait for the GIL, such as those of a file system in Python.
    of.py().detach(|| read(stream.into_inner(), wanted, welcome, argument))
}

/// What goes to where the GIL is not held, on the same thread.
struct Moved<T>(T);

// SAFETY: `Python::detach` does its work on the thread that calls it.
unsafe impl<T> Send for Moved<T> {}

impl<T> Moved<T> {
    fn into_inner(self) -> T {
        self.0
    }
}

/// The tables of a stream, as [`frames`] wants them.
fn read(
    stream: Box<ArrowArrayStream>,
    wanted: &[String],
    welcome: &[&str],
    argument: &str,
) -> PyResult<Vec<DataFrame>> {
    let failed = |error: PolarsError| wrong(argument, error);
    // SAFETY: the producer promises a valid stream by the capsule's name.
    let mut reader = unsafe { ArrowArrayStreamReader::try_new(stream) }.map_err(failed)?;
    let ArrowDataType::Struct(fields) = reader.field().dtype().clone() else {
        return Err(wrong(argument, "expected a table with columns"));
    };
    let can_hold = |field: &ArrowField| Frames::can_hold(&held(field.dtype()));
    let is_chosen = |field: &ArrowField| {
        let name = field.name.as_str();
        wanted.is_empty()
            || wanted.iter().any(|wanted| wanted == name)
            || (welcome.contains(&name) && can_hold(field))
    };
    let chosen: Vec<usize> = (0..fields.len()).filter(|at| is_chosen(&fields[*at])).collect();
    for field in chosen.iter().map(|at| &fields[*at]) {
        if !can_hold(field) {
            let problem = format!(
                "column `{}`: expected numbers, text, booleans, dates, times or lists, found {:?}; cast it",
                field.name, field.dtype
            );
            return Err(wrong(argument, problem));
        }
    }
    let empty = chosen.iter().map(|at| {
        let dtype = DataType::from_arrow_dtype(&held(fields[*at].dtype()));
        Column::new_empty(fields[*at].name.clone(), &dtype)
    });
    let mut tables = Vec::new();
    // SAFETY: as above.
    while let Some(batch) = unsafe { reader.next() } {
        let batch = batch.map_err(failed)?;
        let Some(batch) = batch.as_any().downcast_ref::<StructArray>() else {
            return Err(wrong(argument, "expected a table with columns"));
        };
        let columns = chosen.iter().map(|at| {
            let column = batch.values()[*at].clone();
            series(&fields[*at], column).map(Column::from)
        });
        let columns = columns.collect::<PolarsResult<Vec<_>>>().map_err(failed)?;
        tables.push(DataFrame::new(batch.len(), columns).map_err(failed)?);
    }
    if tables.is_empty() {
        tables.push(DataFrame::new(0, empty.collect()).map_err(failed)?);
    }
    Ok(tables)
}

/// The type as a column holds it: an instant is the same in all zones, a list of a fixed length is a
/// list, and a category is what it is called.
fn held(dtype: &ArrowDataType) -> ArrowDataType {
    match dtype {
        ArrowDataType::Timestamp(unit, Some(_)) => ArrowDataType::Timestamp(*unit, None),
        ArrowDataType::FixedSizeList(item, _) => ArrowDataType::LargeList(item.clone()),
        ArrowDataType::Dictionary(_, value, _) => held(value),
        other => other.clone(),
    }
}

fn series(field: &ArrowField, column: ArrayRef) -> PolarsResult<Series> {
    let dtype = held(field.dtype());
    let any = column.as_any();
    if let Some((rows, values)) = categories(any) {
        let value = ArrowField::new(field.name.clone(), values.dtype().clone(), true);
        return series(&value, values)?.take(&rows.into_iter().collect());
    }
    let column = if let Some(lists) = any.downcast_ref::<FixedSizeListArray>() {
        let lengths = std::iter::repeat_n(lists.size(), lists.len());
        let offsets = Offsets::try_from_lengths(lengths)?.into();
        let (values, validity) = (lists.values().clone(), lists.validity().cloned());
        ListArray::<i64>::try_new(dtype.clone(), offsets, values, validity)?.boxed()
    } else {
        match any.downcast_ref::<PrimitiveArray<i64>>() {
            Some(instants) if dtype != *field.dtype() => instants.clone().to(dtype.clone()).boxed(),
            _ => column,
        }
    };
    Series::try_from((&ArrowField::new(field.name.clone(), dtype, true), vec![column]))
}

/// The number of the category of each row, and what the categories are called, of a column of categories.
fn categories(column: &dyn Any) -> Option<(Vec<Option<IdxSize>>, ArrayRef)> {
    fn of<K: DictionaryKey>(column: &dyn Any) -> Option<(Vec<Option<IdxSize>>, ArrayRef)> {
        let column = column.downcast_ref::<DictionaryArray<K>>()?;
        let row = |key: Option<usize>| key.and_then(|key| IdxSize::try_from(key).ok());
        Some((column.keys_iter().map(row).collect(), column.values().clone()))
    }
    of::<i8>(column)
        .or_else(|| of::<i16>(column))
        .or_else(|| of::<i32>(column))
        .or_else(|| of::<i64>(column))
        .or_else(|| of::<u8>(column))
        .or_else(|| of::<u16>(column))
        .or_else(|| of::<u32>(column))
        .or_else(|| of::<u64>(column))
}

/// The types of columns of the library's tables.
const TYPES: [DataType; 6] = [
    DataType::UInt32,
    DataType::Int32,
    DataType::Int64,
    DataType::Float32,
    DataType::Float64,
    DataType::String,
];

/// A table of the library, which any library with Arrow reads without a copy.
#[pyclass(frozen, module = "fast_slate._native")]
pub struct Table(DataFrame);

impl Table {
    pub(crate) fn new(mut table: DataFrame) -> Self {
        table.rechunk_mut();
        Self(table)
    }
}

#[pymethods]
impl Table {
    /// A table of columns of integers, floats or texts; `None` is an empty cell. The types are those of
    /// `dtypes`, if they are given.
    #[new]
    #[pyo3(signature = (columns, dtypes = None))]
    fn of_columns(
        columns: Vec<(String, Bound<'_, PyAny>)>,
        dtypes: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let failed = |error: PolarsError| wrong("columns", error);
        let column = |(name, cells): (String, Bound<'_, PyAny>)| {
            let name = PlSmallStr::from(name);
            let known = |integers: &Vec<Option<i64>>| integers.iter().any(Option::is_some);
            if let Some(integers) = cells.extract().ok().filter(known) {
                return Ok(Column::new(name, integers));
            }
            match cells.extract::<Vec<Option<String>>>() {
                Ok(texts) => Ok(Column::new(name, texts)),
                Err(_) => Ok(Column::new(name, cells.extract::<Vec<Option<f64>>>()?)),
            }
        };
        let mut columns = columns.into_iter().map(column).collect::<PyResult<Vec<_>>>()?;
        for (column, dtype) in columns.iter_mut().zip(dtypes.iter().flatten()) {
            if let Some(dtype) = TYPES.iter().find(|of| of.to_string() == *dtype) {
                *column = column.strict_cast(dtype).map_err(failed)?;
            }
        }
        DataFrame::new_infer_height(columns).map(Self).map_err(failed)
    }

    /// The type of each column, as [`of_columns`](Self::of_columns) takes it.
    #[getter]
    fn dtypes(&self) -> Vec<String> {
        self.0.dtypes().iter().map(ToString::to_string).collect()
    }

    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0.get_column_names().into_iter().map(ToString::to_string).collect()
    }

    fn __len__(&self) -> usize {
        self.0.height()
    }

    /// The cells of a column as Python's own objects, or the first of them.
    #[pyo3(signature = (column, rows = None))]
    fn cells<'py>(
        &self,
        py: Python<'py>,
        column: &str,
        rows: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let failed = |error: PolarsError| PyRuntimeError::new_err(error.to_string());
        let Ok(cells) = self.0.column(column) else {
            let columns = self.column_names().join(", ");
            let problem = format!("no column `{column}`; the columns are {columns}");
            return Err(PyKeyError::new_err(problem));
        };
        let cells = cells.as_materialized_series().head(Some(rows.unwrap_or(cells.len())));
        if let Ok(texts) = cells.str() {
            return texts.iter().collect::<Vec<_>>().into_pyobject(py);
        }
        if cells.dtype().is_float() {
            let cells = cells.cast(&DataType::Float64).map_err(failed)?;
            return cells.f64().map_err(failed)?.iter().collect::<Vec<_>>().into_pyobject(py);
        }
        let cells = cells.cast(&DataType::Int64).map_err(failed)?;
        cells.i64().map_err(failed)?.iter().collect::<Vec<_>>().into_pyobject(py)
    }

    /// The table as a stream of the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A consumer that asks for other types casts by itself, as the interface allows.
        drop(requested_schema);
        let level = CompatLevel::oldest();
        let fields: Vec<ArrowField> =
            self.0.columns().iter().map(|column| column.field().to_arrow(level)).collect();
        let dtype = ArrowDataType::Struct(fields);
        let batches: Vec<_> = self.0.iter_chunks(level, false).collect();
        let of = dtype.clone();
        let batches = batches.into_iter().map(move |batch| {
            let rows = batch.height();
            let columns = batch.into_arrays();
            Ok(StructArray::try_new(of.clone(), rows, columns, None)?.boxed())
        });
        let field = ArrowField::new("".into(), dtype, false);
        let stream = export_iterator(Box::new(batches), field);
        // The stream's own destructor releases it, unless a consumer has moved it out.
        PyCapsule::new_with_value(py, stream, NAME)
    }
}
