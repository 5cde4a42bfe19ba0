//! Bytes of delimited text → records: the one place that knows where a record ends. A line break
//! ends a record unless an odd number of quotes stands before it.

use std::io::{Error, ErrorKind, Read, Result};
use std::ops::Range;

use memchr::{memchr_iter, memchr2_iter};

/// The places of `byte` in `bytes` that are not within a pair of `quote`.
pub(super) fn unquoted(
    bytes: &[u8],
    byte: u8,
    quote: Option<u8>,
) -> impl Iterator<Item = usize> + '_ {
    let mut open = false;
    memchr2_iter(byte, quote.unwrap_or(byte), bytes).filter(move |&at| {
        let is_quote = quote == Some(bytes[at]);
        open ^= is_quote;
        !is_quote && !open
    })
}

/// What is wrong with the quotes of whole records, if anything is. A quote opens a field or closes one,
/// or is one of two within a field in quotes; any other may hide the ends of records.
pub(super) fn misquoted(bytes: &[u8], separator: u8, quote: u8) -> Option<&'static str> {
    const WITHIN: &str = "a quote stands within a field: put the whole field in quotes, and double \
                          each quote in it";
    let ends = |byte: &u8| [separator, quote, b'\n'].contains(byte);
    let mut open = false;
    for at in memchr_iter(quote, bytes) {
        let is_placed = if open {
            bytes.get(at + 1).is_none_or(|next| ends(next) || *next == b'\r')
        } else {
            // The second of two, where the quote before has just closed the field.
            bytes[..at].last().is_none_or(ends)
        };
        if !is_placed {
            return Some(WITHIN);
        }
        open = !open;
    }
    open.then_some("a quote is left open")
}

/// Where the records of `bytes` are, with their line breaks; empty ones are left out.
pub(super) fn records(bytes: &[u8], quote: Option<u8>) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    let ends = unquoted(bytes, b'\n', quote).map(|at| at + 1).chain([bytes.len()]);
    let records = ends.map(move |end| std::mem::replace(&mut start, end)..end);
    records.filter(|record| !trimmed(&bytes[record.clone()]).is_empty())
}

/// A record without its line break.
pub(super) fn trimmed(record: &[u8]) -> &[u8] {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    record.strip_suffix(b"\r").unwrap_or(record)
}

/// The bytes of `reader` in blocks of whole records, of about `size` bytes each. The last record of
/// the last block may be cut.
///
/// The blocks end with an error of the kind `FileTooLarge` at a record that is longer than a block.
pub(super) fn blocks(
    reader: &mut (dyn Read + Send),
    quote: Option<u8>,
    size: usize,
) -> impl Iterator<Item = Result<Vec<u8>>> + '_ {
    let (mut rest, mut ended) = (Vec::new(), false);
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let mut block = std::mem::take(&mut rest);
        block.reserve(size);
        let read = (&mut *reader).take(size as u64).read_to_end(&mut block);
        ended = !read.as_ref().is_ok_and(|read| *read == size);
        if let Err(error) = read {
            return Some(Err(error));
        }
        if !ended {
            let Some(last) = unquoted(&block, b'\n', quote).last() else {
                ended = true;
                return Some(Err(Error::from(ErrorKind::FileTooLarge)));
            };
            rest = block.split_off(last + 1);
        }
        (!block.is_empty()).then_some(Ok(block))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_of(text: &str, size: usize) -> Vec<Result<String>> {
        let mut reader = text.as_bytes();
        let blocks = blocks(&mut reader, Some(b'"'), size);
        blocks.map(|block| Ok(String::from_utf8(block?).unwrap())).collect()
    }

    #[test]
    fn records_are_not_cut_at_line_breaks_within_quotes() {
        let text = "a,b\n1,\"x\ny\"\n2,z";
        for size in 9..40 {
            let blocks: Vec<_> = blocks_of(text, size).into_iter().map(Result::unwrap).collect();
            assert_eq!(blocks.concat(), text);
            for block in &blocks {
                assert!(block.matches('"').count() % 2 == 0, "{size}: {blocks:?}");
            }
        }
        let text = b"\r\na,b\r\n\n1,\"\n\"\n2";
        let found: Vec<_> = records(text, Some(b'"')).map(|at| trimmed(&text[at])).collect();
        assert_eq!(found, [&b"a,b"[..], b"1,\"\n\"", b"2"]);
    }

    #[test]
    fn quotes_stand_around_fields_or_doubled_within_them() {
        for sound in
            ["", "a,\"\"\n\"b\",c\r\n", "\"a,\nb\",\"\"\"c\"\" d\"\r\n", "\"\"", "\"\"\"\""]
        {
            assert_eq!(misquoted(sound.as_bytes(), b',', b'"'), None, "{sound}");
        }
        for (text, said) in [
            ("a,5\" b\n", "within a field"),
            ("a,\"b\" c\n", "within a field"),
            ("a, \"b\"\n", "within a field"),
            ("a,b\"\"c\n", "within a field"),
            ("\"\"a,b\n", "within a field"),
            ("a,\"b\n", "left open"),
            ("a,\"\"\"\n", "left open"),
        ] {
            let problem = misquoted(text.as_bytes(), b',', b'"').unwrap();
            assert!(problem.contains(said), "{text}: {problem}");
        }
    }

    #[test]
    fn an_open_quote_ends_the_blocks_at_the_stream_s_end_or_a_block_later() {
        let read = |text: &str, size| {
            blocks_of(text, size).into_iter().map(|block| block.is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(read("1,2\n3,\"4\n5,6\n", 100), [true]);
        assert_eq!(read("1,2\n3,\"4\n5,6\n7,8\n9,0\n1,2\n3,4\n", 8), [true, false]);
    }
}
