//! The footer of a file, before polars believes it: polars reserves memory for as many elements as a
//! list says that it has, and the process ends where there is not so much. It takes fields for what
//! their numbers say, so that each must be of the type that Parquet gives it.
//!
//! A footer is a struct of Thrift's compact protocol
//! (<https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>); its fields are
//! those of `FileMetaData` in
//! <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>.

use std::io::{self, Read, Seek, SeekFrom};

/// What a file ends with.
const MAGIC: [u8; 4] = *b"PAR1";

/// The footer's length, and [`MAGIC`].
const TAIL: u64 = 8;

/// Structs and lists within each other; Parquet has six.
const DEPTH: u32 = 32;

/// False if the footer holds a list of more elements than it has bytes, or a field of another type than
/// Parquet's. What else is wrong, polars says.
///
/// # Errors
/// An I/O error.
pub(super) fn is_sound(file: &mut (impl Read + Seek)) -> io::Result<bool> {
    let end = file.seek(SeekFrom::End(0))?;
    let Some(tail) = end.checked_sub(TAIL) else { return Ok(true) };
    file.seek(SeekFrom::Start(tail))?;
    let (mut length, mut magic) = ([0; 4], [0; 4]);
    file.read_exact(&mut length)?;
    file.read_exact(&mut magic)?;
    let length = u64::from(u32::from_le_bytes(length));
    let mut footer = Vec::new();
    match tail.checked_sub(length) {
        Some(start) if magic == MAGIC => {
            file.seek(SeekFrom::Start(start))?;
            file.take(length).read_to_end(&mut footer)?;
        }
        _ => return Ok(true),
    }
    Ok(Thrift(&footer).value(STRUCT, &FILE, DEPTH).is_some())
}

/// What Parquet gives a field or the elements of a list.
enum Type {
    Any,
    Truth,
    Byte,
    Integer,
    Binary,
    List(&'static Type),
    /// The fields from the first on.
    Struct(&'static [Type]),
}

use Type::{Any, Binary, Byte, Integer, List, Struct, Truth};

const FILE: Type = Struct(&[
    Integer,
    List(&SCHEMA_ELEMENT),
    Integer,
    List(&ROW_GROUP),
    List(&Struct(&[Binary, Binary])),
    Binary,
    List(&Struct(&[EMPTY, EMPTY])),
]);
const EMPTY: Type = Struct(&[]);
const SCHEMA_ELEMENT: Type = Struct(&[
    Integer,
    Integer,
    Integer,
    Binary,
    Integer,
    Integer,
    Integer,
    Integer,
    Integer,
    LOGICAL_TYPE,
]);
const LOGICAL_TYPE: Type = Struct(&[
    EMPTY,
    EMPTY,
    EMPTY,
    EMPTY,
    Struct(&[Integer, Integer]),
    EMPTY,
    TIME,
    TIME,
    Any,
    Struct(&[Byte, Truth]),
]);
const TIME: Type = Struct(&[Truth, Struct(&[EMPTY, EMPTY, EMPTY])]);
const ROW_GROUP: Type = Struct(&[
    List(&COLUMN_CHUNK),
    Integer,
    Integer,
    List(&Struct(&[Integer, Truth, Truth])),
    Integer,
    Integer,
    Integer,
]);
const COLUMN_CHUNK: Type =
    Struct(&[Binary, Integer, COLUMN_META_DATA, Integer, Integer, Integer, Integer]);
const COLUMN_META_DATA: Type = Struct(&[
    Integer,
    List(&Integer),
    List(&Binary),
    Integer,
    Integer,
    Integer,
    Integer,
    Any,
    Integer,
    Integer,
    Integer,
    Struct(&[Binary, Binary, Integer, Integer, Binary, Binary, Truth, Truth]),
    Any,
    Integer,
    Integer,
]);

impl Type {
    /// True if a value of a type of the protocol may be one of this.
    fn takes(&self, kind: u8) -> bool {
        match self {
            Any => true,
            Truth => BOOLEANS.contains(&kind),
            Byte => kind == BYTE,
            Integer => INTEGERS.contains(&kind),
            Binary => kind == BINARY,
            List(_) => kind == LIST,
            Struct(_) => kind == STRUCT,
        }
    }
}

const STOP: u8 = 0;
const BOOLEANS: [u8; 2] = [1, 2];
const BYTE: u8 = 3;
const INTEGERS: [u8; 3] = [4, 5, 6];
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// The bytes that are not read yet.
struct Thrift<'a>(&'a [u8]);

impl Thrift<'_> {
    fn skip(&mut self, count: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number, seven bits in a byte, the lowest first.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// The number of a field: 16 bits with a sign, which is in the lowest; from 1.
    fn field_number(&mut self) -> Option<usize> {
        let twice = Some(self.number()?).filter(|number| number % 2 == 0)?;
        let number = i16::try_from(twice / 2).ok().filter(|&number| number > 0)?;
        usize::try_from(number).ok()
    }

    /// Reads a value, or none where it is not of the type.
    fn value(&mut self, kind: u8, of: &Type, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1).filter(|_| of.takes(kind))?;
        match kind {
            // As elements; those of a struct are in the heads of fields.
            _ if BOOLEANS.contains(&kind) => self.skip(1),
            _ if INTEGERS.contains(&kind) => self.number().map(drop),
            BYTE => self.skip(1),
            DOUBLE => self.skip(8),
            BINARY => {
                let length = self.number()?;
                self.skip(length)
            }
            LIST | SET => {
                let head = self.byte()?;
                let size = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
                let of = if let List(of) = of { of } else { &Any };
                self.elements(size, &[head & 15], of, depth)
            }
            MAP => {
                let size = self.number()?;
                let kinds = if size > 0 { self.byte()? } else { 0 };
                self.elements(size, &[kinds >> 4, kinds & 15], &Any, depth)
            }
            STRUCT => self.fields(if let Struct(fields) = of { fields } else { &[] }, depth),
            _ => None,
        }
    }

    fn elements(&mut self, size: u64, kinds: &[u8], of: &Type, depth: u32) -> Option<()> {
        // Each has a byte at least.
        if size > self.0.len() as u64 {
            return None;
        }
        for _ in 0..size {
            for &kind in kinds {
                self.value(kind, of, depth)?;
            }
        }
        Some(())
    }

    fn fields(&mut self, fields: &[Type], depth: u32) -> Option<()> {
        let mut number = 0;
        loop {
            let head = self.byte()?;
            let kind = head & 15;
            if kind == STOP {
                return Some(());
            }
            // How far the field is from the one before; where that does not fit, its number.
            number = match head >> 4 {
                0 => self.field_number()?,
                step => number + usize::from(step),
            };
            let of = fields.get(number - 1).unwrap_or(&Any);
            if !BOOLEANS.contains(&kind) {
                self.value(kind, of, depth)?;
            } else if !of.takes(kind) {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use polars::prelude::*;

    use super::*;

    #[test]
    fn a_list_that_is_longer_than_its_footer_is_found() {
        let columns = vec![
            Column::new("id".into(), ["a", "b"]),
            Column::new("at".into(), [1_i64, 2]),
            Column::new(
                "list".into(),
                [Series::new("".into(), [1.0_f32]), Series::new("".into(), [2.0_f32])],
            ),
        ];
        let mut file = Vec::new();
        let mut table = DataFrame::new_infer_height(columns).unwrap();
        ParquetWriter::new(&mut file).finish(&mut table).unwrap();
        assert!(is_sound(&mut Cursor::new(&file)).unwrap());

        // The second field, after the version, is the list of six columns and their groups.
        let tail = file.len() - 8;
        let length = u32::from_le_bytes(*file[tail..].first_chunk().unwrap());
        let start = tail - length as usize;
        assert_eq!(file[start + 2..start + 4], [0x19, 0x6c]);
        file.splice(start + 3..start + 4, [0xfc, 0xff, 0xff, 0xff, 0xff, 0x07]);
        file[tail + 5..tail + 9].copy_from_slice(&(length + 5).to_le_bytes());
        assert!(!is_sound(&mut Cursor::new(&file)).unwrap());
        // The same list under the name of a number.
        file[start + 2] = 0x15;
        assert!(!is_sound(&mut Cursor::new(&file)).unwrap());
    }
}
