//! A stream of bytes in blocks of whole records.

use std::io::Read;

use memchr::{memrchr, memrchr2_iter};

/// Bytes that end with a record's line break, or with the stream.
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    /// Whether the last record is cut, because its quote is left open to the stream's end or for
    /// longer than a block.
    pub(super) is_open: bool,
}

/// See the [module](self).
pub(super) struct Blocks<'a> {
    reader: &'a mut (dyn Read + Send),
    /// Within a pair of these a line break ends no record.
    quote: Option<u8>,
    size: usize,
    rest: Vec<u8>,
    ended: bool,
}

impl<'a> Blocks<'a> {
    /// Blocks of about `size` bytes.
    pub(super) fn new(reader: &'a mut (dyn Read + Send), quote: Option<u8>, size: usize) -> Self {
        Self { reader, quote, size, rest: Vec::new(), ended: false }
    }

    fn fill(&mut self) -> std::io::Result<Option<Block>> {
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.reserve(self.size);
        let wanted = self.size as u64;
        let read = (&mut *self.reader).take(wanted).read_to_end(&mut bytes)? as u64;
        self.ended = read < wanted;
        if self.ended {
            let is_open = self.quote.is_some_and(|quote| count(&bytes, quote) % 2 == 1);
            return Ok((!bytes.is_empty()).then_some(Block { bytes, is_open }));
        }
        let whole = whole_records(&bytes, self.quote);
        if whole == 0 {
            self.ended = true;
            return Ok(Some(Block { bytes, is_open: true }));
        }
        self.rest.extend_from_slice(&bytes[whole..]);
        bytes.truncate(whole);
        Ok(Some(Block { bytes, is_open: false }))
    }
}

impl Iterator for Blocks<'_> {
    type Item = std::io::Result<Block>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let block = self.fill();
        self.ended |= block.is_err();
        block.transpose()
    }
}

/// How many of the first bytes are whole records.
fn whole_records(bytes: &[u8], quote: Option<u8>) -> usize {
    let Some(quote) = quote else {
        return memrchr(b'\n', bytes).map_or(0, |at| at + 1);
    };
    let mut open = count(bytes, quote) % 2 == 1;
    for at in memrchr2_iter(quote, b'\n', bytes) {
        if bytes[at] == quote {
            open = !open;
        } else if !open {
            return at + 1;
        }
    }
    0
}

fn count(bytes: &[u8], byte: u8) -> usize {
    memchr::memchr_iter(byte, bytes).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str, size: usize) -> Vec<(String, bool)> {
        let mut reader = text.as_bytes();
        Blocks::new(&mut reader, Some(b'"'), size)
            .map(|block| block.unwrap())
            .map(|block| (String::from_utf8(block.bytes).unwrap(), block.is_open))
            .collect()
    }

    #[test]
    fn records_are_not_cut_at_line_breaks_within_quotes() {
        let text = "a,b\n1,\"x\ny\"\n2,z";
        for size in 9..40 {
            let blocks = blocks(text, size);
            assert_eq!(blocks.iter().map(|(block, _)| block.as_str()).collect::<String>(), text);
            for (block, is_open) in &blocks {
                assert!(!is_open);
                assert!(block.matches('"').count() % 2 == 0, "{size}: {blocks:?}");
            }
        }
    }

    #[test]
    fn an_open_quote_ends_the_blocks_at_the_stream_s_end_or_a_block_later() {
        let closed = |text: &str, size| {
            blocks(text, size).into_iter().map(|block| block.1).collect::<Vec<_>>()
        };
        assert_eq!(closed("1,2\n3,\"4\n5,6\n", 100), [true]);
        assert_eq!(closed("1,2\n3,\"4\n5,6\n7,8\n9,0\n1,2\n3,4\n", 8), [false, true]);
    }
}
