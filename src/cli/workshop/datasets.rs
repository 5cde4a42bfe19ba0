//! `slate datasets`: the public data sets that `slate prepare` reads as they are published.

use anyhow::Result;

use crate::cli::report::Report;
use crate::dataset::registry::{KNOWN, Known};

pub(super) fn run() -> Result<Report> {
    let text: Vec<String> = KNOWN.iter().map(describe).collect();
    Report::new(&KNOWN, text.join("\n\n"))
}

fn describe(known: &Known) -> String {
    let Known { name, title, page, licence, size, download, files, columns, only, .. } = known;
    // The empty field between two separators is no column.
    let columns: Vec<_> = columns.iter().copied().filter(|name| !name.starts_with('_')).collect();
    let header = if known.header { "" } else { " (no header)" };
    let rows =
        only.map_or(String::new(), |(column, value)| format!("; rows with {column}={value}"));
    format!(
        "{name}\n  {title}\n  page      {page}\n  licence   {licence}\n  size      {size}\n  \
         download  {}\n  file      {}\n  columns   {}{header}\n  read      users {}, items {}{rows}\n  \
         prepare   slate prepare {} --out data/{name}",
        download.join(" or "),
        files[0],
        columns.join(", "),
        known.user,
        known.item,
        download[0],
    )
}
