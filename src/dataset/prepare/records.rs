//! Bytes of delimited text → records: the one place that knows where a record ends. A line break
//! ends a record unless it stands in a field in quotes. A quote that no rule allows hides nothing: the line
//! with it is a record, and a bad one.

use std::io::{Error, ErrorKind, Read, Result};
use std::ops::Range;

use memchr::{memchr, memchr_iter, memchr2, memchr2_iter};

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
    open.then_some("a quote is left open, or one within its field is not doubled")
}

/// The length of the record that `bytes` begin with, and of its line break. Where a quote is not closed, or
/// one stands where none may ([`misquoted`]), the record is the first line. `None` if what comes
/// behind `bytes`, unless they have `ended`, may belong to it.
fn first(bytes: &[u8], separator: u8, quote: Option<u8>, ended: bool) -> Option<usize> {
    let line = || memchr(b'\n', bytes).map(|at| at + 1);
    let ended = |length: Option<usize>| if ended { length.or(Some(bytes.len())) } else { None };
    let Some(quote) = quote else { return line().or_else(|| ended(None)) };
    let mut from = 0;
    while let Some(at) = memchr2(quote, b'\n', &bytes[from..]).map(|at| from + at) {
        if bytes[at] == b'\n' {
            return Some(at + 1);
        }
        if at > 0 && bytes[at - 1] != separator {
            return line().or_else(|| ended(None));
        }
        from = at + 1;
        loop {
            let Some(at) = memchr(quote, &bytes[from..]) else { return ended(line()) };
            from += at + 1;
            match bytes.get(from) {
                Some(next) if *next == quote => from += 1,
                Some(next) if ![separator, b'\n', b'\r'].contains(next) => {
                    return line().or_else(|| ended(None));
                }
                _ => break,
            }
        }
    }
    ended(None)
}

/// Where the records of `bytes` are, with their line breaks; empty ones are left out.
pub(super) fn records(
    bytes: &[u8],
    separator: u8,
    quote: Option<u8>,
) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    let records = std::iter::from_fn(move || {
        let rest = &bytes[start..];
        let end = start + first(rest, separator, quote, true).filter(|_| !rest.is_empty())?;
        Some(std::mem::replace(&mut start, end)..end)
    });
    records.filter(|record| !trimmed(&bytes[record.clone()]).is_empty())
}

/// A record without its line break.
pub(super) fn trimmed(record: &[u8]) -> &[u8] {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    record.strip_suffix(b"\r").unwrap_or(record)
}

/// The bytes of `reader` in blocks of whole records, of about `size` bytes each. The last record of
/// the last block may be cut. A quote that is open for longer than a block is not closed.
///
/// The blocks end with an error of the kind `FileTooLarge` at a line that is longer than a block.
pub(super) fn blocks(
    reader: &mut (dyn Read + Send),
    separator: u8,
    quote: Option<u8>,
    size: usize,
) -> impl Iterator<Item = Result<Vec<u8>>> + '_ {
    let (mut rest, mut ended) = (Vec::new(), false);
    std::iter::from_fn(move || {
        while !ended {
            let mut block = std::mem::take(&mut rest);
            block.reserve(size);
            let read = (&mut *reader).take(size as u64).read_to_end(&mut block);
            ended = !read.as_ref().is_ok_and(|read| *read == size);
            if let Err(error) = read {
                return Some(Err(error));
            }
            if ended {
                return (!block.is_empty()).then_some(Ok(block));
            }
            let mut end = 0;
            while let Some(length) = first(&block[end..], separator, quote, false) {
                end += length;
            }
            if end == 0 && block.len() > size {
                let Some(line) = memchr(b'\n', &block) else {
                    ended = true;
                    return Some(Err(Error::from(ErrorKind::FileTooLarge)));
                };
                end = line + 1;
            }
            rest = block.split_off(end);
            if end > 0 {
                return Some(Ok(block));
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_of(text: &str, size: usize) -> Vec<Result<String>> {
        let mut reader = text.as_bytes();
        let blocks = blocks(&mut reader, b',', Some(b'"'), size);
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
        let found: Vec<_> = records(text, b',', Some(b'"')).map(|at| trimmed(&text[at])).collect();
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
    fn a_quote_that_no_rule_allows_spoils_its_own_line_alone() {
        for (text, found) in [
            ("1,\"a\nb\",x\n2,c\n", &["1,\"a\nb\",x", "2,c"][..]),
            ("1,\"a\n\"\"b\"\"\"\n2,c", &["1,\"a\n\"\"b\"\"\"", "2,c"]),
            ("1,\"a\n2,\"b\n3,c\n", &["1,\"a", "2,\"b", "3,c"]),
            ("1,\"a\nb\" x\n2,\"c\nd\"\n", &["1,\"a", "b\" x", "2,\"c\nd\""]),
            ("1,a\"\n2,\"b\r\n\"\r\n3,\"c\n4,d", &["1,a\"", "2,\"b\r\n\"", "3,\"c", "4,d"]),
            ("\"", &["\""]),
        ] {
            let bytes = text.as_bytes();
            let lines = |text: &str| {
                let records = records(text.as_bytes(), b',', Some(b'"'));
                records.map(|at| text[at].trim_end().to_owned()).collect::<Vec<_>>()
            };
            assert_eq!(lines(text), found, "{text}");
            // Blocks of the size of the longest record and more divide nothing else.
            for size in 12..bytes.len() {
                let blocks = blocks_of(text, size).into_iter().map(Result::unwrap);
                let found_in: Vec<_> = blocks.flat_map(|block| lines(&block)).collect();
                assert_eq!(found_in, found, "{size}: {text}");
            }
        }
    }

    #[test]
    fn an_open_quote_hides_nothing_and_a_long_line_ends_the_blocks() {
        let read = |text: &str| {
            let blocks = blocks_of(text, 8).into_iter();
            blocks.map(|block| block.unwrap_or_else(|_| "long".into())).collect::<Vec<_>>()
        };
        let text = "1,2\n3,\"4\n5,6\n7,8\n9,0\n1,2\n3,4\n";
        let blocks = read(text);
        assert_eq!(blocks.concat(), text);
        assert!(blocks.contains(&"3,\"4\n".to_owned()), "{blocks:?}");
        assert_eq!(read("1,2\n3,4567890123456789\n")[1..], ["long"]);
    }
}
