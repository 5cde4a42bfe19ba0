//! Parquet files of the parts of a batch, in any order, in; the file that a batch of the whole writes out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use polars::prelude::*;

use super::Part;
use super::batch::{PART_KEY, SLATES};
use crate::dataset::parquet::{batched, metadata, pieces, whole_row_groups};
use crate::error::{Error, Result};
use crate::files::write_atomic;

/// Joins the `parts` of a batch into the file that a batch of the whole writes, byte for byte. Returns
/// the number of its rows. Parts of earlier builds do not say which they are, and are joined as given.
///
/// # Errors
/// [`Error::File`] for a part that is missing, given twice, one of another number of parts, or has other
/// columns than the first; an error naming the file that cannot be read or written. No file appears then.
pub fn join(parts: &[PathBuf], out: &Path) -> Result<usize> {
    let schema_of = |part: &PathBuf| {
        let head = pieces(part, SLATES, 0..1, 1)?.next().transpose()?;
        Ok::<_, Error>(head.unwrap_or_default().schema().clone())
    };
    let Some(first) = parts.first() else { return Err(Error::file(out, "there are no parts")) };
    let schema = schema_of(first)?;
    let place = |path: &PathBuf| path.canonicalize().ok();
    for (at, part) in parts.iter().enumerate() {
        if parts[..at].iter().any(|other| place(other) == place(part)) {
            return Err(Error::file(
                part,
                "is given twice; a part holds slates that no other one has",
            ));
        }
        let found = schema_of(part)?;
        if found != schema {
            let problem = format!(
                "is no part of what {} is a part of: its columns are {found:?}, expected {schema:?}",
                first.display()
            );
            return Err(Error::file(part, problem));
        }
    }
    let parts = in_order(parts, out)?;
    let failed = |error: PolarsError| Error::writing(out, error);
    let mut rows = 0;
    write_atomic(out, |file| {
        let mut writer = batched(file, &schema, Vec::new()).map_err(failed)?;
        for part in parts {
            for slates in whole_row_groups(part, SLATES)? {
                let mut slates = slates?;
                slates.rechunk_mut();
                rows += slates.height();
                writer.write_batch(&slates).map_err(failed)?;
            }
        }
        writer.finish().map_err(failed)?;
        Ok(())
    })?;
    Ok(rows)
}

/// The parts from 1 to n, each of which must be there once; as they are given if none says which it is.
fn in_order<'a>(parts: &'a [PathBuf], out: &Path) -> Result<Vec<&'a PathBuf>> {
    const NAMED: usize = 8;
    let said = parts.iter().map(|path| {
        let part = metadata(path, PART_KEY)?.map(|text| text.parse::<Part>()).transpose();
        part.map_err(|problem| Error::file(path, format!("`{PART_KEY}`: {problem}")))
    });
    let said = said.collect::<Result<Vec<Option<Part>>>>()?;
    let Some(of) = said.iter().flatten().map(|part| part.of).next() else {
        return Ok(parts.iter().collect());
    };
    let mut placed: BTreeMap<u32, &PathBuf> = BTreeMap::new();
    for (path, part) in parts.iter().zip(said) {
        let problem = match part {
            None => format!("does not say which of {of} parts it is; write it again with --part"),
            Some(part) if part.of != of => format!("is part {part}, expected one of {of} parts"),
            Some(part) => match placed.insert(part.index, path) {
                None => continue,
                Some(other) => format!("is part {part}, and so is {}", other.display()),
            },
        };
        return Err(Error::file(path, problem));
    }
    let count = of as usize - placed.len();
    if count > 0 {
        let missing = (1..=of).filter(|index| !placed.contains_key(index)).take(NAMED);
        let missing: Vec<String> = missing.map(|index| Part { index, of }.to_string()).collect();
        let more = if count > NAMED { ", …" } else { "" };
        let problem = format!("would lack {count} of {of} parts: {}{more}", missing.join(", "));
        return Err(Error::file(out, problem));
    }
    Ok(placed.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_in_their_order_each_once() {
        let folder = tempfile::tempdir().unwrap();
        let saved = |name: &str, part: Option<&str>| {
            let path = folder.path().join(name);
            let part = part.map(|part| (PART_KEY.to_owned(), part.to_owned()));
            let file = fs_err::File::create(&path).unwrap();
            let schema = Schema::from_iter([Field::new("rank".into(), DataType::UInt32)]);
            batched(file, &schema, part.into_iter().collect()).unwrap().finish().unwrap();
            path
        };
        let order = |names: &[(&str, Option<&str>)]| -> Result<Vec<String>> {
            let paths: Vec<PathBuf> = names.iter().map(|(name, part)| saved(name, *part)).collect();
            let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
            Ok(in_order(&paths, Path::new("out"))?.into_iter().map(name).collect())
        };
        // As a glob sorts them.
        let names: Vec<String> = (1..=12).map(|index| format!("part-{index}")).collect();
        let said: Vec<String> = (1..=12).map(|index| format!("{index}/12")).collect();
        let mut parts: Vec<_> = names
            .iter()
            .zip(&said)
            .map(|(name, part)| (name.as_str(), Some(part.as_str())))
            .collect();
        parts.sort_unstable();
        assert_eq!(parts[1].0, "part-10");
        assert_eq!(order(&parts).unwrap(), names);
        assert_eq!(order(&[("b", None), ("a", None)]).unwrap(), ["b", "a"]);
        for (parts, problem) in [
            (&parts[..2], "out: would lack 10 of 12 parts: 2/12, 3/12, 4/12, 5/12"),
            (&[("a", Some("3/3")), ("b", Some("1/3"))], "out: would lack 1 of 3 parts: 2/3"),
            (&[("a", Some("1/2")), ("b", Some("1/2"))], "b: is part 1/2, and so is "),
            (&[("a", Some("1/2")), ("b", Some("2/3"))], "b: is part 2/3, expected one of 2 parts"),
            (&[("a", Some("1/2")), ("b", None)], "b: does not say which of 2 parts it is"),
            (&[("a", Some("3/2"))], "a: `fast-slate.batch.part`: expected i/n"),
        ] {
            let error = order(parts).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
