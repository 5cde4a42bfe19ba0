//! A row ↔ bytes: little-endian numbers, and texts and lists behind their lengths. Single precision
//! keeps its bits.

use super::{Exposure, Feedback, Record};
use crate::bundle::Who;
use crate::bytes::Bytes;

const EXPOSURE: u8 = 1;
const FEEDBACK: u8 = 2;

const ITEMS: u8 = 0;
const USER: u8 = 1;
const CONTEXT: u8 = 2;

/// Appends the bytes of `record`.
pub(super) fn encode(record: &Record, out: &mut Vec<u8>) {
    match record {
        Record::Exposure(row) => {
            out.push(EXPOSURE);
            text(out, &row.request);
            out.extend(row.time.to_le_bytes());
            text(out, &row.bundle);
            text(out, &row.vectors);
            text(out, &row.retrieval);
            match &row.who {
                Who::Items(ids) => {
                    out.push(ITEMS);
                    texts(out, ids);
                }
                Who::User { id, newer } => {
                    out.push(USER);
                    text(out, id);
                    texts(out, newer);
                }
                Who::Context(context) => {
                    out.push(CONTEXT);
                    numbers(out, context);
                }
            }
            numbers(out, &row.h);
            out.extend(row.sigma.to_le_bytes());
            if row.sigma > 0.0 {
                numbers(out, &row.z);
            }
            out.push(u8::from(row.exploring));
            out.extend(row.share.to_le_bytes());
            out.extend(row.k.to_le_bytes());
            texts(out, &row.exclude);
            out.push(u8::from(row.exclude_seen));
            out.push(u8::from(row.filter.is_some()));
            if let Some(filter) = &row.filter {
                text(out, filter);
            }
            for list in [&row.allow, &row.deny, &row.filters, &row.slate] {
                texts(out, list);
            }
            numbers(out, &row.scores);
            out.extend(row.shards_answered.to_le_bytes());
            out.extend(row.shards.to_le_bytes());
            out.push(u8::from(row.fallback));
        }
        Record::Feedback(row) => {
            out.push(FEEDBACK);
            text(out, &row.request);
            out.extend(row.position.to_le_bytes());
            out.extend(row.value.to_le_bytes());
            text(out, &row.event);
            out.extend(row.time.to_le_bytes());
        }
    }
}

/// The row that was encoded; none if these are not the bytes of a row, each of them.
pub(super) fn decode(bytes: &[u8]) -> Option<Record> {
    let mut from = Bytes(bytes);
    let record = match from.byte()? {
        EXPOSURE => Record::from(from.exposure()?),
        FEEDBACK => Record::from(Feedback {
            request: from.text()?,
            position: u32::from_le_bytes(from.array()?),
            value: f64::from_le_bytes(from.array()?),
            event: from.text()?,
            time: i64::from_le_bytes(from.array()?),
        }),
        _ => return None,
    };
    from.0.is_empty().then_some(record)
}

/// A length beyond 32 bits makes a row beyond the limit of a row, which is refused.
fn length(out: &mut Vec<u8>, length: usize) {
    out.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    length(out, text.len());
    out.extend(text.as_bytes());
}

fn texts(out: &mut Vec<u8>, list: &[String]) {
    length(out, list.len());
    for item in list {
        text(out, item);
    }
}

fn numbers(out: &mut Vec<u8>, list: &[f32]) {
    length(out, list.len());
    out.extend(list.iter().flat_map(|number| number.to_le_bytes()));
}

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    fn truth(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn single(&mut self) -> Option<f32> {
        Some(f32::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Option<String> {
        let length = self.count()?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    fn texts(&mut self) -> Option<Vec<String>> {
        (0..self.count()?).map(|_| self.text()).collect()
    }

    fn numbers(&mut self) -> Option<Vec<f32>> {
        (0..self.count()?).map(|_| self.single()).collect()
    }

    fn exposure(&mut self) -> Option<Exposure> {
        let request = self.text()?;
        let time = i64::from_le_bytes(self.array()?);
        let (bundle, vectors, retrieval) = (self.text()?, self.text()?, self.text()?);
        let who = match self.byte()? {
            ITEMS => Who::Items(self.texts()?),
            USER => Who::User { id: self.text()?, newer: self.texts()? },
            CONTEXT => Who::Context(self.numbers()?),
            _ => return None,
        };
        let (h, sigma) = (self.numbers()?, self.single()?);
        let z = if sigma > 0.0 { self.numbers()? } else { h.clone() };
        Some(Exposure {
            request,
            time,
            bundle,
            vectors,
            retrieval,
            who,
            h,
            z,
            sigma,
            exploring: self.truth()?,
            share: self.single()?,
            k: u32::from_le_bytes(self.array()?),
            exclude: self.texts()?,
            exclude_seen: self.truth()?,
            filter: if self.truth()? { Some(self.text()?) } else { None },
            allow: self.texts()?,
            deny: self.texts()?,
            filters: self.texts()?,
            slate: self.texts()?,
            scores: self.numbers()?,
            shards_answered: u16::from_le_bytes(self.array()?),
            shards: u16::from_le_bytes(self.array()?),
            fallback: self.truth()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{exposure, feedback};
    use super::*;

    #[test]
    fn a_row_comes_back_and_no_part_of_one_does() {
        for at in 0..42 {
            for record in [Record::from(exposure(at)), Record::from(feedback(at))] {
                let mut bytes = Vec::new();
                encode(&record, &mut bytes);
                assert_eq!(decode(&bytes), Some(record));
                for end in 0..bytes.len() {
                    assert_eq!(decode(&bytes[..end]), None);
                }
                bytes.push(0);
                assert_eq!(decode(&bytes), None);
            }
        }
    }
}
