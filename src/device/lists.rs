//! What a search on a GPU has found lies there in lists, one for each query, until the host asks for it: a
//! sweep over a share of β adds the products above a threshold, and pruning drops what cannot be among the
//! K best any more and raises the threshold. The host waits for neither.

use std::ops::Range;

use burn::tensor::{Device, Int, Tensor};

/// Lists of actions and their products, in no order.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "kernels read it, which a build without GPUs does not have")]
pub(crate) struct Lists {
    /// How many passed, `[N]`; of more than [`room`](Self::room), only so many are in the list. Below 0 for a
    /// query with more than a list had room for when it was pruned.
    pub(crate) counts: Tensor<1, Int>,
    /// `[N · room]`.
    pub(crate) actions: Tensor<1, Int>,
    /// `[N · room]`.
    pub(crate) products: Tensor<1>,
    /// The most actions of a list.
    pub(crate) room: usize,
}

impl Lists {
    /// Room for lists of `queries` queries, which are not there yet.
    pub(crate) fn with_room(room: usize, queries: usize, device: &Device) -> Self {
        Self {
            counts: Tensor::empty([queries], device),
            actions: Tensor::empty([queries * room], device),
            products: Tensor::empty([queries * room], device),
            room,
        }
    }
}

/// Queries on the device, with what they ask for.
#[derive(Debug)]
#[allow(dead_code, reason = "kernels read it, which a build without GPUs does not have")]
pub(crate) struct Asked {
    /// `[N, width]` of a block, each times a factor of its own, in f32 or in f16 as β is.
    pub(crate) queries: Tensor<2>,
    /// The difference of two products that rounding may explain, `[N]`.
    pub(crate) rounding: Tensor<1>,
    /// Where the excluded actions of each query begin and end, `[2 N]`.
    pub(crate) spans: Tensor<1, Int>,
    /// Excluded actions, ascending within a span; at least one number.
    pub(crate) excluded: Tensor<1, Int>,
    /// K.
    pub(crate) slate_size: usize,
    /// What a product must exceed, `[N]`.
    pub(crate) thresholds: Tensor<1>,
}

/// A share of the actions of a block.
#[derive(Debug)]
#[allow(dead_code, reason = "kernels read it, which a build without GPUs does not have")]
pub(crate) struct Part<'a> {
    /// `[actions, width]`.
    pub(crate) beta: &'a Tensor<2>,
    /// The first action.
    pub(crate) offset: usize,
    /// The stride of the block's actions.
    pub(crate) stride: usize,
    /// From where to where in the order of visit, within `[0, 1]`. Shares next to each other have all tiles of
    /// both, and none twice.
    pub(crate) share: Range<f64>,
    /// What is added before a number of tiles is cut to a whole one, below 1: blocks with different ones take
    /// turns where a share has less than a tile of each.
    pub(crate) turn: f64,
}
