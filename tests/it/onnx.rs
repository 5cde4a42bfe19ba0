//! The ONNX model in a bundle, read by a reader that shares no code with its writer, computes the
//! queries of the tower.

use std::collections::BTreeMap;
use std::path::Path;

use fast_slate::bundle::{Bundle, VectorScalar};
use fast_slate::device;
use fast_slate::facade::{Policy, Which};
use fast_slate::matrix::Matrix;
use fast_slate::seed::{Purpose, Seed};
use fast_slate::settings::{Preset, SettingsBuilder};
use fast_slate::tower::{Activation, TowerForm};
use statrs::function::erf::erf;

use crate::common::{assert_says, refused, slate, small_of, stdout};

/// A Protobuf message: the fields with bytes, and those with a number, in their order.
struct Message<'a> {
    bytes: Vec<(u64, &'a [u8])>,
    numbers: Vec<(u64, u64)>,
}

impl<'a> Message<'a> {
    fn read(mut rest: &'a [u8]) -> Self {
        let mut message = Self { bytes: Vec::new(), numbers: Vec::new() };
        while !rest.is_empty() {
            let (tag, value) = (varint(&mut rest), varint(&mut rest));
            match tag % 8 {
                0 => message.numbers.push((tag / 8, value)),
                2 => {
                    let (content, after) = rest.split_at(value as usize);
                    message.bytes.push((tag / 8, content));
                    rest = after;
                }
                kind => panic!("wire type {kind}"),
            }
        }
        message
    }

    fn parts(&self, field: u64) -> Vec<Self> {
        let fields = self.bytes.iter().filter(|(number, _)| *number == field);
        fields.map(|(_, content)| Self::read(content)).collect()
    }

    fn part(&self, field: u64) -> Self {
        let mut parts = self.parts(field);
        assert_eq!(parts.len(), 1, "field {field}");
        parts.swap_remove(0)
    }

    fn texts(&self, field: u64) -> Vec<&'a str> {
        let fields = self.bytes.iter().filter(|(number, _)| *number == field);
        fields.map(|(_, content)| std::str::from_utf8(content).unwrap()).collect()
    }

    fn text(&self, field: u64) -> &'a str {
        let texts = self.texts(field);
        assert_eq!(texts.len(), 1, "field {field}");
        texts[0]
    }

    fn numbers(&self, field: u64) -> Vec<u64> {
        self.numbers
            .iter()
            .filter(|(number, _)| *number == field)
            .map(|(_, value)| *value)
            .collect()
    }
}

fn varint(rest: &mut &[u8]) -> u64 {
    let length = rest.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let (own, after) = rest.split_at(length);
    *rest = after;
    own.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
}

/// A matrix, a vector as one row, or one number.
#[derive(Clone)]
struct Tensor {
    cols: usize,
    numbers: Vec<f64>,
}

impl Tensor {
    fn map(&self, each: impl Fn(f64) -> f64) -> Self {
        Self { cols: self.cols, numbers: self.numbers.iter().copied().map(each).collect() }
    }

    /// With one number, or as many.
    fn with(&self, other: &Self, each: impl Fn(f64, f64) -> f64) -> Self {
        let others = &other.numbers;
        assert!(others.len() == 1 || others.len() == self.numbers.len() && other.cols == self.cols);
        let pairs = self.numbers.iter().zip(others.iter().cycle());
        Self { cols: self.cols, numbers: pairs.map(|(a, b)| each(*a, *b)).collect() }
    }

    fn times(&self, other: &Self) -> Self {
        assert_eq!(self.cols, other.numbers.len() / other.cols);
        let entry = |row: &[f64], col: usize| -> f64 {
            let column = other.numbers.iter().skip(col).step_by(other.cols);
            row.iter().zip(column).map(|(a, b)| a * b).sum()
        };
        let mut numbers = Vec::new();
        for row in self.numbers.chunks(self.cols) {
            numbers.extend((0..other.cols).map(|col| entry(row, col)));
        }
        Self { cols: other.cols, numbers }
    }

    fn beside(&self, other: &Self) -> Self {
        let rows = self.numbers.chunks(self.cols).zip(other.numbers.chunks(other.cols));
        let numbers = rows.flat_map(|(a, b)| [a, b].concat()).collect();
        Self { cols: self.cols + other.cols, numbers }
    }

    /// The columns from `first` to before `end`.
    fn columns(&self, first: f64, end: f64) -> Self {
        let own = |col: &usize| (first..end).contains(&(*col as f64));
        let columns: Vec<usize> = (0..self.cols).filter(own).collect();
        let rows = self.numbers.chunks(self.cols);
        let numbers = rows.flat_map(|row| columns.iter().map(|&col| row[col])).collect();
        Self { cols: columns.len(), numbers }
    }
}

/// The name of a `ValueInfoProto` of a matrix of f32, and its shape.
fn value<'a>(value: &Message<'a>) -> (&'a str, &'a str, u64) {
    let tensor = value.part(2).part(1);
    assert_eq!(tensor.numbers(1), [1]);
    let dims = tensor.part(2).parts(1);
    assert_eq!(dims.len(), 2);
    (value.text(1), dims[0].text(2), dims[1].numbers(1)[0])
}

/// A `TensorProto`.
fn initializer<'a>(tensor: &Message<'a>) -> (&'a str, Tensor) {
    let raw = tensor.bytes.iter().find(|(field, _)| *field == 9).unwrap().1;
    let numbers: Vec<f64> = match tensor.numbers(2)[..] {
        [1] => raw.chunks(4).map(|le| f32::from_le_bytes(le.try_into().unwrap()).into()).collect(),
        [7] => raw.chunks(8).map(|le| i64::from_le_bytes(le.try_into().unwrap()) as f64).collect(),
        ref kind => panic!("numbers of type {kind:?}"),
    };
    let shape = tensor.numbers(1);
    assert_eq!(shape.iter().product::<u64>() as usize, numbers.len());
    (tensor.text(8), Tensor { cols: shape.last().map_or(1, |&cols| cols as usize), numbers })
}

/// The model's `h` of `contexts`, after the checks of all that stands around the nodes.
fn queries(file: &Path, contexts: &Matrix, latent_dim: u64) -> Vec<f64> {
    let bytes = fs_err::read(file).unwrap();
    let model = Message::read(&bytes);
    assert_eq!((model.numbers(1), model.text(2)), (vec![8], "fast-slate"));
    assert_eq!(model.text(3), env!("CARGO_PKG_VERSION"));
    assert_says(model.text(6), &["the context M(X)", "steps"]);
    let operators = model.part(8);
    assert_eq!((operators.text(1), operators.numbers(2)), ("", vec![17]));
    let graph = model.part(7);
    assert_eq!(graph.text(2), "tower");
    assert_eq!(value(&graph.part(11)), ("context", "batch", contexts.cols() as u64));
    assert_eq!(value(&graph.part(12)), ("h", "batch", latent_dim));

    let mut known: BTreeMap<&str, Tensor> = graph.parts(5).iter().map(initializer).collect();
    let numbers = contexts.as_slice().iter().map(|&number| number.into()).collect();
    known.insert("context", Tensor { cols: contexts.cols(), numbers });
    for node in graph.parts(1) {
        assert_eq!(node.text(3), node.text(2));
        let inputs: Vec<&Tensor> = node.texts(1).into_iter().map(|name| &known[name]).collect();
        let output = match (node.text(4), &inputs[..]) {
            ("MatMul", [a, b]) => a.times(b),
            ("Add", [a, b]) => a.with(b, |a, b| a + b),
            ("Sub", [a, b]) => a.with(b, |a, b| a - b),
            ("Mul", [a, b]) => a.with(b, |a, b| a * b),
            ("Div", [a, b]) => a.with(b, |a, b| a / b),
            ("Relu", [a]) => a.map(|a| a.max(0.0)),
            ("Tanh", [a]) => a.map(f64::tanh),
            ("Sigmoid", [a]) => a.map(|a| 1.0 / (1.0 + (-a).exp())),
            ("Erf", [a]) => a.map(erf),
            ("Slice", [a, first, end, axis]) => {
                assert_eq!(axis.numbers, [1.0]);
                a.columns(first.numbers[0], end.numbers[0])
            }
            ("Concat", [a, b]) => {
                let axis = node.part(5);
                assert_eq!(
                    (axis.text(1), axis.numbers(20), axis.numbers(3)),
                    ("axis", [2].into(), [1].into())
                );
                a.beside(b)
            }
            (operator, inputs) => panic!("{operator} of {} inputs", inputs.len()),
        };
        assert!(known.insert(node.text(2), output).is_none(), "{} twice", node.text(2));
    }
    known["h"].numbers.clone()
}

fn normals(at: u64, [rows, cols]: [usize; 2]) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    Seed(6).stream(Purpose::Synthetic, 0, at).fill_normals(matrix.as_mut_slice());
    matrix
}

/// A run of one step with queries of L = 8 numbers.
fn trained(folder: &Path, sets: &[&str]) -> Policy {
    let prepared = small_of(&folder.join("data"), 8);
    let mut builder = SettingsBuilder::new(&prepared.preset(Preset::Default)).unwrap();
    for set in [&["budget.amount=1", "evaluation.count=1"], sets].concat() {
        builder = builder.assignment(set).unwrap();
    }
    prepared.train(&builder.build().unwrap(), &folder.join("run")).unwrap();
    Policy::open(&folder.join("run"), Which::Last, Some("flex")).unwrap()
}

#[test]
fn the_onnx_model_of_every_tower_has_its_queries() {
    let folder = tempfile::tempdir().unwrap();
    let policy = trained(folder.path(), &["context.encoders=[\"fold-in\", \"mean\", \"mean\"]"]);
    let mut bundle = policy.bundle(false).unwrap();
    bundle.onnx = true;
    let device = device::choose(Some("flex")).unwrap().device;
    let residual = |activation| TowerForm::ResidualMlp { activation, scale: 1.7, balance: None };
    let balanced = |share| {
        let activation = Activation::Tanh;
        TowerForm::ResidualMlp { activation, scale: 1.7, balance: Some(share) }
    };
    for (form, widths) in [
        (TowerForm::Linear, &[24, 8][..]),
        (TowerForm::SigmoidMlp, &[24, 5, 8]),
        (residual(Activation::Relu), &[24, 8]),
        (residual(Activation::Relu), &[24, 24, 12, 8]),
        (residual(Activation::Gelu), &[24, 24, 12, 8]),
        (residual(Activation::Tanh), &[24, 24, 12, 8]),
        (residual(Activation::Sigmoid), &[24, 24, 12, 8]),
        (balanced(0.6), &[16, 8]),
        // Contexts of two means and nothing else.
        (balanced(-0.4), &[8, 24, 8]),
    ] {
        let dim = if widths[0] == 8 { 16 } else { 24 };
        bundle.encoding.encoders.truncate(dim / 8);
        let contexts = normals(0, [128, dim]);
        let layers: Vec<Matrix> = (1..)
            .zip(widths.windows(2))
            .map(|(at, ends)| normals(at, [ends[0], ends[1]]))
            .collect();
        let tower = form.tower(&layers, [dim, 8], &device).unwrap();
        let latent = tower.latent(&contexts).unwrap();
        bundle.model = tower.into();
        let out = folder.path().join("bundle");
        let manifest = bundle.write(&out, VectorScalar::F16, true).unwrap();
        assert!(manifest.files.contains_key("tower.onnx"));
        let found = queries(&out.join("tower.onnx"), &contexts, 8);
        for (h, found) in latent.iter_rows().zip(found.chunks(8)) {
            let length = h.iter().map(|h| f64::from(*h).powi(2)).sum::<f64>().sqrt();
            let apart = |(h, found): (&f32, &f64)| (f64::from(*h) - found).powi(2);
            let apart = h.iter().zip(found).map(apart).sum::<f64>().sqrt();
            assert!(apart <= 1e-5 * length, "{form:?}: {apart} of {length}");
        }
        // What opens a bundle neither needs it nor takes another for it.
        let (opened, _) = Bundle::open(&out, &device).unwrap();
        assert!(opened.onnx);
        assert_eq!(opened.model.latent(&contexts).unwrap(), latent);
        let mut bytes = fs_err::read(out.join("tower.onnx")).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs_err::write(out.join("tower.onnx"), bytes).unwrap();
        let error = Bundle::open(&out, &device).unwrap_err().to_string();
        assert_says(&error, &["tower.onnx: is not what was written"]);
    }
}

#[test]
fn an_export_adds_the_model_and_refuses_one_of_no_tower() {
    let folder = tempfile::tempdir().unwrap();
    trained(folder.path(), &[]);
    let at = |name: &str| folder.path().join(name).display().to_string();
    let export = |extra: &[&str]| {
        let mut command = slate();
        command.args(["export", &at("run"), "--out", &at("bundle")]).args(extra);
        command
    };
    assert!(!stdout(&mut export(&[])).contains("tower.onnx"));
    assert_says(&stdout(&mut export(&["--onnx", "--force"])), &["tower.onnx"]);
    assert_says(&stdout(slate().args(["info", &at("bundle")])), &["tower.onnx"]);

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    trained(folder.path(), &["method.kind=pl-rank", "method.learn_actions=true"]);
    // Before the index, which such a model has not either.
    let args = ["export", &at("run"), "--out", &at("bundle"), "--onnx", "--index"];
    let error = refused(slate().args(args));
    assert_says(
        &error,
        &["setting `onnx`", "learned its action vectors", "the query is the context"],
    );
    assert!(!folder.path().join("bundle").exists());
}
