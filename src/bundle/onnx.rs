//! A tower in, an ONNX model of it out: `context` `[batch, D]` → `h` `[batch, L]` in f32, by operators
//! that every runtime has.
//!
//! An ONNX model is a Protobuf message. The fields have the numbers of
//! [onnx.proto](https://github.com/onnx/onnx/blob/v1.12.0/onnx/onnx.proto), and a model of a tower needs
//! two of [Protobuf's wire types](https://protobuf.dev/programming-guides/encoding/): numbers, and
//! bytes that follow their length. [`Message`] writes these, so no code is generated.

use super::Trained;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::tower::{Activation, Tower, TowerForm};

/// The version of the operators, and that of the format which came with it: ONNX 1.12, of 2022.
const OPERATORS: u64 = 17;
const FORMAT: u64 = 8;

/// Types of numbers: `TensorProto.DataType`.
const FLOAT: u64 = 1;
const INT64: u64 = 7;

/// The most bytes of layers: readers of Protobuf take 2 GiB, and the rest of the model is small.
const LARGEST: usize = (1 << 31) - (1 << 20);

const CONTEXT: &str = "context";
const QUERY: &str = "h";
const SCALE: &str = "scale";

/// The file's bytes.
///
/// # Errors
/// [`Error::Setting`] for layers that are too large for Protobuf; [`Error::Library`] when the device
/// fails.
pub(super) fn model(tower: &Tower, trained: &Trained) -> Result<Vec<u8>> {
    let layers = tower.layers()?;
    check_size(layers.iter().map(|layer| size_of_val(layer.as_slice())).sum())?;
    let (first, last) = (layers.first(), layers.last());
    let latent_dim = last.map_or(0, Matrix::cols);
    let form = tower.form()?;
    let balanced = matches!(form, TowerForm::ResidualMlp { balance: Some(_), .. });
    let context_dim = first.map_or(0, Matrix::rows) + if balanced { latent_dim } else { 0 };
    let about = format!(
        "A policy of slates, after {} steps: the context M(X) of somebody in, the query h out. The slate \
         is the items of greatest inner product of h and their vectors, which are in \
         vectors.safetensors of the bundle.",
        trained.step
    );
    let graph = Graph::of(form, &layers, [context_dim, latent_dim])
        .0
        .text(2, "tower") // name
        .message(11, &value(CONTEXT, context_dim)) // input
        .message(12, &value(QUERY, latent_dim)); // output
    let model = Message::default()
        .number(1, FORMAT) // ir_version
        .text(2, "fast-slate") // producer_name
        .text(3, &trained.version) // producer_version
        .text(6, &about) // doc_string
        .message(7, &graph) // graph
        // opset_import: of the default domain, the version
        .message(8, &Message::default().text(1, "").number(2, OPERATORS));
    Ok(model.0)
}

fn check_size(bytes: usize) -> Result<()> {
    if bytes <= LARGEST {
        return Ok(());
    }
    let problem = format!(
        "the layers of this tower take {bytes} bytes, and an ONNX file holds {LARGEST}; export \
         without --onnx"
    );
    Err(Error::setting("onnx", problem))
}

/// A `GraphProto` under construction.
struct Graph(Message);

impl Graph {
    /// The graph of [`Tower::forward`].
    fn of(form: TowerForm, layers: &[Matrix], [context_dim, latent_dim]: [usize; 2]) -> Self {
        let mut graph = Self(Message::default());
        let names: Vec<String> = (0..layers.len()).map(|at| format!("layer.{at}")).collect();
        for (name, layer) in names.iter().zip(layers) {
            graph.floats(name, &[layer.rows(), layer.cols()], layer.as_slice());
        }
        let Some((output, hidden)) = names.split_last() else { return graph };
        match form {
            TowerForm::Linear => graph.node("MatMul", &[CONTEXT, output], QUERY),
            TowerForm::SigmoidMlp => {
                let hidden = graph.hidden(CONTEXT, hidden, Activation::Sigmoid);
                graph.node("MatMul", &[&hidden, output], QUERY);
            }
            TowerForm::ResidualMlp { activation, scale, balance } => {
                let rest = context_dim - latent_dim;
                let context = match balance {
                    None => CONTEXT,
                    Some(share) => graph.balanced(share, latent_dim, rest - latent_dim),
                };
                graph.floats(SCALE, &[], &[scale]);
                graph.node("Div", &[context, SCALE], "scaled");
                let hidden = graph.hidden("scaled", hidden, activation);
                graph.node("MatMul", &[&hidden, output], "unscaled");
                graph.node("Mul", &["unscaled", SCALE], "residual");
                graph.columns(context, [0, latent_dim], "identity");
                graph.node("Add", &["identity", "residual"], QUERY);
            }
        }
        graph
    }

    /// `M₁ + c (M₂ − M₁)` and the `rest` of the context; the name of the output.
    fn balanced(&mut self, share: f32, latent_dim: usize, rest: usize) -> &'static str {
        self.floats("share", &[], &[share]);
        self.columns(CONTEXT, [0, latent_dim], "first");
        self.columns(CONTEXT, [latent_dim, 2 * latent_dim], "second");
        self.node("Sub", &["second", "first"], "apart");
        self.node("Mul", &["apart", "share"], "way");
        self.node("Add", &["first", "way"], "mean");
        if rest == 0 {
            return "mean";
        }
        self.columns(CONTEXT, [2 * latent_dim, 2 * latent_dim + rest], "rest");
        self.join(&["mean", "rest"], "balanced");
        "balanced"
    }

    /// The hidden layers on `x`; the name of their output.
    fn hidden(&mut self, x: &str, layers: &[String], activation: Activation) -> String {
        layers.iter().fold(x.to_owned(), |x, layer| {
            let (z, a) = (format!("{layer}.z"), format!("{layer}.a"));
            self.node("MatMul", &[&x, layer], &z);
            match activation {
                Activation::Relu => self.node("Relu", &[&z], &a),
                Activation::Tanh => self.node("Tanh", &[&z], &a),
                Activation::Sigmoid => self.node("Sigmoid", &[&z], &a),
                Activation::Gelu => self.gelu(&z, &a),
            }
            a
        })
    }

    /// `z/2 · (1 + erf(z/√2))`: the operator Gelu came later, in version 20.
    fn gelu(&mut self, z: &str, a: &str) {
        let part = |name: &str| format!("{a}.{name}");
        let [root, one, half] = ["root", "one", "half"].map(part);
        let [scaled, erf, above, twice] = ["scaled", "erf", "above", "twice"].map(part);
        self.floats(&root, &[], &[std::f32::consts::SQRT_2]);
        self.floats(&one, &[], &[1.0]);
        self.floats(&half, &[], &[0.5]);
        self.node("Div", &[z, &root], &scaled);
        self.node("Erf", &[&scaled], &erf);
        self.node("Add", &[&erf, &one], &above);
        self.node("Mul", &[z, &above], &twice);
        self.node("Mul", &[&twice, &half], a);
    }

    /// The columns of `x` from the first bound to before the second.
    fn columns(&mut self, x: &str, [first, end]: [usize; 2], output: &str) {
        let name = |bound: &str| format!("{output}.{bound}");
        let names = ["first", "end", "axis"].map(name);
        for (name, bound) in names.iter().zip([first as u64, end as u64, 1]) {
            self.integer(name, bound);
        }
        let [first, end, axis] = &names;
        self.node("Slice", &[x, first, end, axis], output);
    }

    /// `parts` side by side.
    fn join(&mut self, parts: &[&str], output: &str) {
        // name, type INT, i
        let axis = Message::default().text(1, "axis").number(20, 2).number(3, 1);
        self.node_with("Concat", parts, output, Some(&axis));
    }

    fn node(&mut self, operator: &str, inputs: &[&str], output: &str) {
        self.node_with(operator, inputs, output, None);
    }

    /// `NodeProto`.
    fn node_with(
        &mut self,
        operator: &str,
        inputs: &[&str],
        output: &str,
        attribute: Option<&Message>,
    ) {
        let node = inputs.iter().fold(Message::default(), |node, input| node.text(1, input)); // input
        let node = node.text(2, output).text(3, output).text(4, operator); // output, name, op_type
        let node = attribute.into_iter().fold(node, |node, it| node.message(5, it)); // attribute
        self.add(1, &node); // node
    }

    fn floats(&mut self, name: &str, shape: &[usize], numbers: &[f32]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.tensor(name, shape, FLOAT, &bytes);
    }

    fn integer(&mut self, name: &str, value: u64) {
        self.tensor(name, &[1], INT64, &value.to_le_bytes());
    }

    /// `TensorProto`.
    fn tensor(&mut self, name: &str, shape: &[usize], kind: u64, bytes: &[u8]) {
        let dims = |tensor: Message, &length: &usize| tensor.number(1, length as u64); // dims
        let tensor = shape.iter().fold(Message::default(), dims);
        let tensor = tensor.number(2, kind).text(8, name).bytes(9, bytes); // data_type, name, raw_data
        self.add(5, &tensor); // initializer
    }

    fn add(&mut self, field: u64, part: &Message) {
        self.0 = std::mem::take(&mut self.0).message(field, part);
    }
}

/// `ValueInfoProto` of a matrix `[batch, width]`.
fn value(name: &str, width: usize) -> Message {
    let batch = Message::default().text(2, "batch"); // dim_param
    let width = Message::default().number(1, width as u64); // dim_value
    let shape = Message::default().message(1, &batch).message(1, &width); // dim
    let tensor = Message::default().number(1, FLOAT).message(2, &shape); // elem_type, shape
    let kind = Message::default().message(1, &tensor); // tensor_type
    Message::default().text(1, name).message(2, &kind) // name, type
}

/// A Protobuf message under construction: fields, one after the other.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    /// Wire type 0.
    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    /// Wire type 2.
    fn bytes(mut self, field: u64, content: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(content.len() as u64);
        self.0.extend_from_slice(content);
        self
    }

    fn text(self, field: u64, content: &str) -> Self {
        self.bytes(field, content.as_bytes())
    }

    fn message(self, field: u64, content: &Self) -> Self {
        self.bytes(field, &content.0)
    }

    /// Seven bits in each byte, the lowest first; the top bit says that more follow.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_protobuf_guide() {
        // Its examples: field 1 = 150, field 2 = "testing", field 3 = a message with field 1 = 150.
        let inner = Message::default().number(1, 150);
        assert_eq!(inner.0, [0x08, 0x96, 0x01]);
        let text = Message::default().text(2, "testing");
        assert_eq!(text.0, *b"\x12\x07testing");
        assert_eq!(Message::default().message(3, &inner).0, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut ends = Message::default();
        for value in [0, 0x7f, 0x80, u64::MAX] {
            ends.varint(value);
        }
        let most = [&[0xff; 9][..], &[0x01]].concat();
        assert_eq!(ends.0, [&[0x00, 0x7f, 0x80, 0x01][..], &most].concat());
    }

    #[test]
    fn layers_beyond_two_gibibytes_are_refused() {
        check_size(LARGEST).unwrap();
        let error = check_size(LARGEST + 1).unwrap_err().to_string();
        assert!(error.contains("setting `onnx`: the layers of this tower"), "{error}");
    }
}
