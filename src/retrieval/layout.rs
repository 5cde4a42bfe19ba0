//! The bytes of a graph → whether usearch may read them. usearch follows the counts and numbers of
//! neighbours in a file beyond its memory, and asks no key whether there is such an action; so a file that
//! somebody else made is looked at first.
//!
//! The layout of usearch 2, all numbers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 4, 4 | nodes, and the bytes of a vector |
//! | | the vectors |
//! | 64 | `usearch`, three u16 of the version; metric, scalar, key and slot (u8 each); present, deleted and dimensions (u64 each); multi (u8) |
//! | 5 · 8 | nodes, M, M of the lowest layer, the top layer, the node to begin at |
//! | 2 each | the layers of every node beyond the lowest |
//! | | every node: its key (u64), its layers (i16), then for each layer, the lowest first, how many neighbours it has and room for M of them (u32 each) |

use usearch::ScalarKind;

use super::HnswOptions;
use crate::bytes::Bytes;

const MAGIC: &[u8] = b"usearch";
const MAJOR: u16 = 2;
/// Bytes of what says how the vectors are to be read.
const HEAD: usize = 64;

impl Bytes<'_> {
    fn long(&mut self) -> Option<usize> {
        self.array().and_then(|bytes| u64::from_le_bytes(bytes).try_into().ok())
    }
}

/// True if `bytes` are a graph over vectors `[≤ P, L]` that was made with `options`, whose keys are
/// different actions and whose neighbours are nodes of their layer.
pub(super) fn is_sound(
    bytes: &[u8],
    [num_actions, latent_dim]: [usize; 2],
    options: &HnswOptions,
) -> bool {
    read(bytes, [num_actions, latent_dim], options).is_some()
}

/// Nothing at the first byte that is not what it should be.
fn read(bytes: &[u8], [num_actions, latent_dim]: [usize; 2], options: &HnswOptions) -> Option<()> {
    let mut reader = Bytes(bytes);
    let (nodes, stride) = (reader.count()?, reader.count()?);
    reader.take(nodes.checked_mul(stride)?)?;
    let mut head = Bytes(reader.take(HEAD)?);
    let magic = head.take(MAGIC.len())?;
    let [major, _, _] = [head.array()?, head.array()?, head.array()?].map(u16::from_le_bytes);
    let [metric, scalar, key, slot] = head.array()?;
    let (present, deleted, dimensions) = (head.long()?, head.long()?, head.long()?);
    let [multi] = head.array()?;
    let scalar_bytes = match options.scalar.kind() {
        ScalarKind::F32 => 4,
        _ => 2,
    };
    let is_ours = magic == MAGIC
        && major == MAJOR
        && metric == kinds::IP
        && scalar == kinds::of(options.scalar.kind())
        && [key, slot] == [kinds::U64, kinds::U32]
        && [present, deleted, dimensions] == [nodes, 0, latent_dim]
        && stride == latent_dim * scalar_bytes
        && multi == 0;
    let [count, upper, lowest] = [reader.long()?, reader.long()?, reader.long()?];
    let (top, start) = (reader.long()?, reader.long()?);
    let fits = count == nodes
        && (1..=num_actions).contains(&nodes)
        && [upper, lowest] == [options.connectivity, 2 * options.connectivity];
    if !is_ours || !fits {
        return None;
    }
    let (layers, _) = reader.take(2 * nodes)?.as_chunks();
    let layers_of = |node: usize| usize::try_from(i16::from_le_bytes(*layers.get(node)?)).ok();
    if layers_of(start)? < top {
        return None;
    }
    let mut seen = vec![false; num_actions];
    for node in 0..nodes {
        let (key, own) = (reader.long()?, layers_of(node)?);
        if std::mem::replace(seen.get_mut(key)?, true)
            || i16::from_le_bytes(reader.array()?) != i16::try_from(own).ok()?
        {
            return None;
        }
        for layer in 0..=own {
            let room = if layer == 0 { lowest } else { upper };
            let count = reader.count()?;
            let neighbours = reader.take(4 * room)?.get(..4 * count)?;
            let (neighbours, _) = neighbours.as_chunks();
            for neighbour in neighbours {
                if layers_of(u32::from_le_bytes(*neighbour) as usize)? < layer {
                    return None;
                }
            }
        }
    }
    reader.0.is_empty().then_some(())
}

/// The numbers of kinds in a file.
mod kinds {
    use super::ScalarKind;

    pub(super) const IP: u8 = b'i';
    pub(super) const U64: u8 = 14;
    pub(super) const U32: u8 = 15;

    pub(super) fn of(kind: ScalarKind) -> u8 {
        match kind {
            ScalarKind::F32 => 11,
            ScalarKind::F16 => 12,
            _ => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::embedding::ActionEmbeddings;
    use crate::retrieval::Hnsw;
    use crate::retrieval::exact::normals;

    const SIZES: [usize; 2] = [300, 4];

    fn graph() -> Vec<u8> {
        let [num_actions, latent_dim] = SIZES;
        let actions = Arc::new(ActionEmbeddings::new(normals(1, num_actions, latent_dim)).unwrap());
        let hnsw = Hnsw::build(actions, &HnswOptions::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.usearch");
        hnsw.save(&path, &path).unwrap();
        fs_err::read(path).unwrap()
    }

    #[test]
    fn what_usearch_wrote_is_sound_and_what_leads_out_of_it_is_not() {
        let options = HnswOptions::default();
        let written = graph();
        assert!(is_sound(&written, SIZES, &options));
        let other = HnswOptions { connectivity: 13, ..options };
        assert!(!is_sound(&written, SIZES, &other), "another M");
        assert!(!is_sound(&written, [SIZES[0], 5], &options), "another L");
        assert!(!is_sound(&written, [299, 4], &options), "a key that is no action");

        // The first node's key is behind head, header and layers.
        let header = 8 + SIZES[0] * SIZES[1] * 2 + HEAD;
        let node = header + 40 + 2 * SIZES[0];
        let changed = |at: usize, bytes: &[u8]| {
            let mut changed = written.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            is_sound(&changed, SIZES, &options)
        };
        let second = written[node + 10 + 4 + 4 * 24..][..8].to_vec();
        assert!(!changed(node, &second), "a key twice");
        assert!(!changed(node + 8, &[9, 0]), "layers that are not those of the table");
        assert!(!changed(node + 10, &[25, 0, 0, 0]), "more neighbours than there is room for");
        assert!(!changed(node + 14, &[44, 1, 0, 0]), "a neighbour that is no node");
        assert!(!changed(header + 32, &[44, 1]), "a beginning that is no node");
        let beyond = (1_u64 << 63).to_le_bytes();
        assert!(!changed(header + 32, &beyond), "a beginning whose place in the table overflows");
        assert!(!changed(header + 24, &[99]), "a beginning below the top");
        assert!(!changed(header + 40, &[255, 255]), "layers below the lowest");
        for end in [0, 3, header, node, node + 9, written.len() - 1] {
            assert!(!is_sound(&written[..end], SIZES, &options), "cut at {end}");
        }
        assert!(!is_sound(&[&written[..], &[0]].concat(), SIZES, &options), "a byte too many");
    }
}
