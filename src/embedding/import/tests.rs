use half::{bf16, f16};
use polars::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::*;

const NUMBERS: [f32; 6] = [1.0, -2.0, 0.5, 4.0, 0.25, 6.0];

/// Without ids.
fn import_rows(path: &Path, num_actions: usize) -> Result<StoredEmbeddings> {
    import(&Import::new(path), &vec![String::new(); num_actions])
}

fn expected() -> StoredEmbeddings {
    let v = Matrix::new(NUMBERS.to_vec(), 2).unwrap();
    v.into()
}

fn safetensors(folder: &Path, dtype: Dtype, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join("beta.safetensors");
    let view = TensorView::new(dtype, vec![3, 2], bytes).unwrap();
    fs_err::write(&path, safetensors::serialize([(name, view)], None).unwrap()).unwrap();
    path
}

/// As NumPy writes it; `shape` is a Python tuple.
fn npy_file(folder: &Path, kind: &str, fortran: bool, shape: &str, numbers: &[u8]) -> PathBuf {
    let path = folder.join("beta.npy");
    let order = if fortran { "True" } else { "False" };
    let header = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}");
    let header = format!("{header:117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(numbers);
    fs_err::write(&path, bytes).unwrap();
    path
}

fn le(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn safetensors_of_every_float_come_in() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |number: fn(f32) -> Vec<u8>| -> Vec<u8> {
        NUMBERS.iter().flat_map(|&value| number(value)).collect()
    };
    for (dtype, bytes) in [
        (Dtype::F32, bytes(|value| value.to_le_bytes().to_vec())),
        (Dtype::F64, bytes(|value| f64::from(value).to_le_bytes().to_vec())),
        (Dtype::F16, bytes(|value| f16::from_f32(value).to_le_bytes().to_vec())),
        (Dtype::BF16, bytes(|value| bf16::from_f32(value).to_le_bytes().to_vec())),
    ] {
        let path = safetensors(folder.path(), dtype, "beta", &bytes);
        assert_eq!(import_rows(&path, 3).unwrap(), expected(), "{dtype:?}");
    }
}

#[test]
fn input_vectors_come_in_beside_the_action_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ids) = (folder.path().join("both.safetensors"), folder.path().join("ids.txt"));
    fs_err::write(&ids, "c\na\nb\n").unwrap();
    let write = |numbers: &[f32], shape: Vec<usize>| {
        let (beta, inputs) = (le(&NUMBERS), le(numbers));
        let beta = TensorView::new(Dtype::F32, vec![3, 2], &beta).unwrap();
        let inputs = TensorView::new(Dtype::F32, shape, &inputs).unwrap();
        let both = safetensors::serialize([("beta", beta), ("inputs", inputs)], None).unwrap();
        fs_err::write(&path, both).unwrap();
        let of = Import { ids: Some(ids.clone()), ..Import::new(&path) };
        import(&of, &["a", "b", "c"].map(str::to_owned))
    };
    let found = write(&NUMBERS.map(|number| 10.0 * number), vec![3, 2]).unwrap();
    assert_eq!(found.v.as_slice(), [0.5, 4.0, 0.25, 6.0, 1.0, -2.0]);
    assert_eq!(found.inputs.unwrap().as_slice(), [5.0, 40.0, 2.5, 60.0, 10.0, -20.0]);
    let error = write(&NUMBERS[..3], vec![3, 1]).unwrap_err().to_string();
    assert!(error.contains("both.safetensors: `inputs`"), "{error}");
}

#[test]
fn npy_in_either_order_comes_in() {
    let folder = tempfile::tempdir().unwrap();
    let columns = [1.0, 0.5, 0.25, -2.0, 4.0, 6.0];
    let path = npy_file(folder.path(), "<f4", false, "(3, 2)", &le(&NUMBERS));
    assert_eq!(import_rows(&path, 3).unwrap(), expected());
    let path = npy_file(folder.path(), "<f4", true, "(3, 2)", &le(&columns));
    assert_eq!(import_rows(&path, 3).unwrap(), expected());
    let path = npy_file(
        folder.path(),
        ">f8",
        true,
        "(3, 2)",
        &columns.map(|number| f64::from(number).to_be_bytes()).concat(),
    );
    assert_eq!(import_rows(&path, 3).unwrap(), expected());
}

#[test]
fn the_wrong_shape_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = npy_file(folder.path(), "<f4", false, "(3, 2)", &le(&NUMBERS));
    let error = import_rows(&path, 4).unwrap_err().to_string();
    assert!(error.contains("[4, L], found [3, 2]"), "{error}");
    let path = npy_file(folder.path(), "<f4", false, "(6,)", &le(&NUMBERS));
    let error = import_rows(&path, 6).unwrap_err().to_string();
    assert!(error.contains("[P, L], found [6]"), "{error}");
}

#[test]
fn other_elements_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = npy_file(folder.path(), "<i4", false, "(3, 2)", &[0; 24]);
    let error = import_rows(&path, 3).unwrap_err().to_string();
    assert!(error.contains("i4") && error.contains("float32"), "{error}");
    let path = safetensors(folder.path(), Dtype::I32, "beta", &[0; 24]);
    let error = import_rows(&path, 3).unwrap_err().to_string();
    assert!(error.contains("I32, expected F32"), "{error}");
}

#[test]
fn nan_is_named_by_row_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let mut numbers = NUMBERS;
    numbers[3] = f32::NAN;
    let path = npy_file(folder.path(), "<f4", false, "(3, 2)", &le(&numbers));
    let error = import_rows(&path, 3).unwrap_err().to_string();
    assert!(error.contains("beta.npy: row 2, column 2 is NaN"), "{error}");
}

#[test]
fn a_missing_tensor_names_those_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = safetensors(folder.path(), Dtype::F32, "weight", &[0; 24]);
    let error = import_rows(&path, 3).unwrap_err().to_string();
    assert!(error.contains("no tensor `beta`; its tensors are: weight"), "{error}");
}

/// A Parquet file of the three items of [`NUMBERS`] in another order, and of one more.
fn parquet(folder: &Path, ids: Series, edit: impl FnOnce(&mut Vec<Column>)) -> Import {
    let path = folder.join("beta.parquet");
    let rows = [[0.25, 6.0], [9.0, 9.0], [1.0, -2.0], [0.5, 4.0_f32]];
    let lists: ListChunked = rows.iter().map(|row| Some(Series::new("".into(), row))).collect();
    let lists = lists.into_series().with_name("vector".into()).into_column();
    let title = Column::new("title".into(), ["c", "?", "a", "b"]);
    let mut columns = vec![title, ids.with_name("item_id".into()).into_column(), lists];
    edit(&mut columns);
    let mut table = DataFrame::new(4, columns).unwrap();
    let file = fs_err::File::create(&path).unwrap();
    ParquetWriter::new(file).finish(&mut table).unwrap();
    Import::new(path)
}

fn text(ids: [&str; 4]) -> Series {
    Series::new("".into(), ids)
}

const IDS: [&str; 4] = ["c", "x", "a", "b"];

fn ids<T: ToString>(ids: &[T]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// Puts a column of floats for each number in the place of the lists.
fn apart(columns: &mut Vec<Column>) {
    columns.truncate(2);
    columns.push(Column::new("x".into(), [0.25, 9.0, 1.0, 0.5]));
    columns.push(Column::new("y".into(), [6.0_f32, 9.0, -2.0, 4.0]));
}

#[test]
fn rows_with_ids_come_in_any_order_and_with_others_between_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let items = ids(&["a", "b", "c"]);
    assert_eq!(import(&parquet(folder, text(IDS), |_| ()), &items).unwrap(), expected());
    assert_eq!(import(&parquet(folder, text(IDS), apart), &items).unwrap(), expected());
    let numbers = parquet(folder, Series::new("".into(), [-30_i64, 5, 10, 20]), |_| ());
    assert_eq!(import(&numbers, &ids(&[10, 20, -30])).unwrap(), expected());
    let file = parquet(folder, text(IDS), |columns| {
        columns[1].rename("sku".into());
    });
    let named = Import { id_column: "sku".into(), ..file };
    assert_eq!(import(&named, &items).unwrap(), expected());

    let path =
        npy_file(folder, "<f4", false, "(4, 2)", &le(&[0.25, 6.0, 9.0, 9.0, 1.0, -2.0, 0.5, 4.0]));
    let list = folder.join("ids.txt");
    fs_err::write(&list, "c\r\nx\na\nb\n").unwrap();
    let file = Import { ids: Some(list.clone()), ..Import::new(path) };
    assert_eq!(import(&file, &items).unwrap(), expected());
    // Blanks are the ids' or the list's.
    fs_err::write(&list, " c\nb\na \nb \n").unwrap();
    assert_eq!(import(&file, &ids(&["a", "b ", " c"])).unwrap(), expected());
    fs_err::write(&list, "c\na\nb\n").unwrap();
    let error = import(&file, &items).unwrap_err().to_string();
    assert!(error.contains("ids.txt: holds 3 ids") && error.contains("4 rows"), "{error}");
}

#[test]
fn items_without_embeddings_are_listed_or_zero() {
    let folder = tempfile::tempdir().unwrap();
    let file = parquet(folder.path(), text(IDS), |_| ());
    let mut items = ids(&["a", "new", "c"]);
    let error = import(&file, &items).unwrap_err().to_string();
    let said = "no embeddings of 1 of the 3 items: new; --missing-embeddings zero";
    assert!(error.contains(said), "{error}");
    let zero = Import { missing: Missing::Zero, ..file };
    let found = import(&zero, &items).unwrap();
    assert_eq!(found.v.as_slice(), [1.0, -2.0, 0.0, 0.0, 0.25, 6.0]);
    items.extend((0..20).map(|number| format!("n{number}")));
    let error = import(&Import { missing: Missing::Error, ..zero.clone() }, &items);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("21 of the 23 items: new, n0,"), "{error}");
    assert!(error.contains("n8, …") && !error.contains("n9"), "{error}");
    // Zeros for all of them would be no embeddings.
    let error = import(&zero, &ids(&[1, 2])).unwrap_err().to_string();
    assert!(error.contains("2 of the 2 items: 1, 2"), "{error}");
}

#[test]
fn tables_that_are_no_embeddings_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let of = |ids, edit: &dyn Fn(&mut Vec<Column>)| {
        let file = parquet(folder.path(), ids, |columns| edit(columns));
        import(&file, &[String::from("a")]).unwrap_err().to_string()
    };
    let error = of(text(["a", "b", "a", "c"]), &|_| ());
    assert!(error.contains("beta.parquet: id `a` is in row 1 and in row 3"), "{error}");
    let error = of(text(IDS), &|columns| columns.truncate(2));
    assert!(error.contains("the columns are title, item_id"), "{error}");
    let error = of(text(IDS), &|columns| {
        columns.remove(1);
    });
    assert!(error.contains("no column `item_id`"), "{error}");
    let error = of(text(IDS), &|columns| columns[1] = Column::new("item_id".into(), [1.5; 4]));
    assert!(error.contains("column `item_id`: expected integers or text"), "{error}");
    let row = |values: &[f32]| Some(Series::new("".into(), values));
    for (third, said) in [
        (row(&[1.0]), "row 3: column `vector` holds 1 numbers, expected 2"),
        (row(&[1.0, f32::NAN]), "row 3, column 2 is NaN"),
        (None, "row 3: column `vector`: expected a list of numbers, found `null`"),
    ] {
        let error = of(text(IDS), &|columns| {
            let lists = [row(&[1.0, 2.0]), row(&[1.0, 2.0]), third.clone(), row(&[1.0, 2.0])];
            let lists: ListChunked = lists.into_iter().collect();
            columns[2] = lists.into_series().with_name("vector".into()).into_column();
        });
        assert!(error.contains(said), "{error}");
    }
    let error = of(text(IDS), &|columns| {
        apart(columns);
        columns[3] = Column::new("y".into(), [Some(1.0), None, None, None]);
    });
    assert!(error.contains("row 2: column `y`: expected a number, found `null`"), "{error}");
}

#[test]
fn truncated_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let npy = npy_file(folder.path(), "<f4", false, "(3, 2)", &le(&NUMBERS));
    let bytes = NUMBERS.map(f32::to_le_bytes).concat();
    let tensors = safetensors(folder.path(), Dtype::F32, "beta", &bytes);
    for path in [npy, tensors] {
        let whole = fs_err::read(&path).unwrap();
        fs_err::write(&path, &whole[..whole.len() - 3]).unwrap();
        assert!(matches!(import_rows(&path, 3), Err(Error::File { .. })), "{}", path.display());
    }
    for shape in ["(4294967296, 4294967296)", "(3, 3)", "(9223372036854775807, 2)"] {
        let path = npy_file(folder.path(), "<f4", false, shape, &le(&NUMBERS));
        let error = import_rows(&path, 3).unwrap_err().to_string();
        assert!(error.contains("beta.npy: is no .npy file: it has 152 bytes, too few"), "{error}");
    }
}
