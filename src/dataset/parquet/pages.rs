//! The headers of pages, before polars believes them: it reserves memory for as many values as one
//! says, and ends the process where there is not so much.

use std::io::Cursor;

use polars::io::mmap::{MmapBytesReader, ReaderBytes};
use polars_parquet::parquet::error::ParquetResult;
use polars_parquet::parquet::page::CompressedPage;
use polars_parquet::parquet::read::PageReader;
use polars_parquet::read::FileMetadata;

/// True if the pages of `columns` have as many values as the columns have.
///
/// # Errors
/// A page that cannot be read.
///
/// # Panics
/// As polars does, for a file that cannot be mapped.
pub(super) fn are_sound(
    mut file: impl MmapBytesReader,
    metadata: &FileMetadata,
    columns: &[&str],
) -> ParquetResult<bool> {
    let bytes = match ReaderBytes::from(&mut file) {
        ReaderBytes::Owned(bytes) => bytes,
        ReaderBytes::Borrowed(bytes) => bytes.to_vec().into(),
    };
    for group in &metadata.row_groups {
        let chunks = columns.iter().filter_map(|name| group.columns_under_root_iter(name));
        for column in chunks.flatten() {
            let range = column.byte_range();
            let (start, end) = (usize::try_from(range.start)?, usize::try_from(range.end)?);
            if start > end || end > bytes.len() {
                return Ok(false);
            }
            let mut left = usize::try_from(column.num_values())?;
            let is_list = column.descriptor().descriptor.max_rep_level > 0;
            if !is_list && left != group.num_rows() {
                return Ok(false);
            }
            let chunk = Cursor::new(bytes.clone().sliced(start..end));
            for page in PageReader::new(chunk, column, Vec::new(), end - start) {
                if let CompressedPage::Data(page) = page? {
                    match left.checked_sub(page.num_values()) {
                        Some(rest) => left = rest,
                        None => return Ok(false),
                    }
                }
            }
        }
    }
    Ok(true)
}
