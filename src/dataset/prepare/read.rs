//! A log of interactions → distinct pairs of numbered users and items.

use super::filter::{self, Filters};
use super::interactions::Interactions;
use super::log::Log;
use super::movielens;
use super::source::Source;
use crate::error::Result;
use crate::files::digest_file;

/// Reads and filters the interactions at `source`.
///
/// # Errors
/// A missing file or column, a cell without an id or with an unreadable rating, a table that polars
/// cannot read, a threshold on ratings that are not there, or a filter that leaves nothing: each
/// names the file.
pub fn read(source: &Source, filters: &Filters) -> Result<Interactions> {
    let path = source.file()?;
    let log = Log::open(source, &path, filters.min_rating.is_some())?;
    let has_movies = log.has_movies();
    let pairs = filter::distinct_pairs(&log.typed()?, filters, &path)?;
    let mut interactions = Interactions::new(path, &pairs)?;
    if has_movies && let Some(titles) = movielens::titles(&interactions.path)? {
        interactions.set_titles(&titles)?;
    }
    Ok(interactions)
}

/// SHA-256 of the file of interactions, in hex.
///
/// # Errors
/// An I/O error naming the file, or a folder without one.
pub fn digest(source: &Source) -> Result<String> {
    digest_file(&source.file()?)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;

    use polars::prelude::*;

    use super::*;

    const RATINGS: &str = "userId,movieId,rating,timestamp\n\
                           2,10,5.0,1\n2,30,3.5,2\n1,20,0.5,3\n1,10,4.0,4\n2,10,1.0,5\n";

    /// Every interaction counts.
    fn all() -> Filters {
        Filters { min_rating: None, min_user_interactions: 1, min_item_interactions: 1 }
    }

    fn at_least(min_rating: f64) -> Filters {
        Filters { min_rating: Some(min_rating), ..all() }
    }

    fn file(name: &str, bytes: impl AsRef<[u8]>) -> (tempfile::TempDir, Source) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs_err::write(&path, bytes).unwrap();
        (folder, Source { path, ..Default::default() })
    }

    /// `user item` of each pair, in order.
    fn pairs(interactions: &Interactions) -> Vec<String> {
        let text = |ids: &Series, row: u32| ids.get(row as usize).unwrap().str_value().to_string();
        let Interactions { users, items, items_of, .. } = interactions;
        let pairs = items_of.contexts().flat_map(|u| items_of.of(u).iter().map(move |&i| (u, i)));
        pairs.map(|(u, i)| format!("{} {}", text(users, u), text(items, i))).collect()
    }

    fn read_text(name: &str, text: impl AsRef<[u8]>, filters: &Filters) -> Result<Vec<String>> {
        let (_folder, source) = file(name, text);
        read(&source, filters).map(|interactions| pairs(&interactions))
    }

    fn problem(name: &str, text: impl AsRef<[u8]>, filters: &Filters) -> String {
        read_text(name, text, filters).unwrap_err().to_string()
    }

    #[test]
    fn movielens_csv_with_its_titles_and_without_its_duplicates() {
        let (folder, source) = file("ratings.csv", RATINGS);
        let titles = "movieId,title,genres\n30,\"Postino, Il (1994)\",Comedy\n10,Heat (1995),A|B\n";
        fs_err::write(folder.path().join("movies.csv"), titles).unwrap();
        for source in [source, Source { path: folder.path().to_owned(), ..Default::default() }] {
            let interactions = read(&source, &all()).unwrap();
            assert_eq!(pairs(&interactions), ["1 10", "1 20", "2 10", "2 30"]);
            assert_eq!(interactions.users.dtype(), &DataType::Int64);
            let titles = [Some("Heat (1995)".into()), None, Some("Postino, Il (1994)".into())];
            assert_eq!(interactions.titles.unwrap(), titles);
            assert_eq!(digest(&source).unwrap().len(), 64);
        }
    }

    #[test]
    fn a_rating_threshold_comes_before_duplicates_and_counts() {
        assert_eq!(
            read_text("ratings.csv", RATINGS, &at_least(3.5)).unwrap(),
            ["1 10", "2 10", "2 30"]
        );
        let filters = Filters { min_user_interactions: 2, ..at_least(3.5) };
        assert_eq!(read_text("ratings.csv", RATINGS, &filters).unwrap(), ["2 10", "2 30"]);
        let filters = Filters { min_item_interactions: 2, ..all() };
        assert_eq!(read_text("ratings.csv", RATINGS, &filters).unwrap(), ["1 10", "2 10"]);
    }

    #[test]
    fn movielens_dat_in_latin_1_and_in_utf_8() {
        let ratings = "1::10::5::978300760\n2::20::3.5::978302109\n";
        for movies in [
            &b"10::L\xe9on: The Pro (1994)::Crime\n"[..],
            "10::Léon: The Pro (1994)::Crime\n".as_bytes(),
        ] {
            let (folder, source) = file("ratings.dat", ratings);
            fs_err::write(folder.path().join("movies.dat"), movies).unwrap();
            let interactions = read(&source, &at_least(1.0)).unwrap();
            assert_eq!(pairs(&interactions), ["1 10", "2 20"]);
            assert_eq!(interactions.titles.unwrap(), [Some("Léon: The Pro (1994)".into()), None]);
        }
        assert!(problem("ratings.dat", "1::10::5::9\n2\t20\t3\t9\n", &all()).contains("row 2"));
    }

    fn named(mut source: Source) -> Source {
        source.user_column = Some("who".into());
        source.item_column = Some("what".into());
        source
    }

    #[test]
    fn delimited_text_with_named_columns() {
        for (name, text) in [
            ("log.csv", "what,who\r\nb,7\r\na,7\r\nb,x\r\n"),
            ("log.TSV", "extra\twhat\twho\n\tb\t7\n\ta\t7\n1\tb\tx\n"),
        ] {
            let (_folder, source) = file(name, text);
            let interactions = read(&named(source), &all()).unwrap();
            assert_eq!(pairs(&interactions), ["7 a", "7 b", "x b"]);
            assert_eq!(interactions.users.dtype(), &DataType::String);
        }
    }

    #[test]
    fn ids_that_only_look_like_integers_keep_their_zeros() {
        let (_folder, source) = file("log.csv", "who,what\n007,1\n7,2\n");
        assert_eq!(pairs(&read(&named(source), &all()).unwrap()), ["007 1", "7 2"]);
    }

    #[test]
    fn gzip() {
        let (folder, _) = file("log.csv", "who,what\n1,2\n");
        let path = folder.path().join("log.csv");
        let zipped = std::process::Command::new("gzip").arg(&path).status();
        if !zipped.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no gzip");
            return;
        }
        let source = named(Source { path: path.with_extension("csv.gz"), ..Default::default() });
        assert_eq!(pairs(&read(&source, &all()).unwrap()), ["1 2"]);
    }

    fn parquet(columns: Vec<Column>) -> (tempfile::TempDir, Source) {
        let (folder, source) = file("log.parquet", "");
        let mut table = DataFrame::new_infer_height(columns).unwrap();
        let file = fs_err::File::create(&source.path).unwrap();
        ParquetWriter::new(file).finish(&mut table).unwrap();
        (folder, named(source))
    }

    #[test]
    fn parquet_of_integers_or_text() {
        let (_folder, mut source) = parquet(vec![
            Column::new("what".into(), [5_u32, 6, 5]),
            Column::new("who".into(), ["b", "a", "b"]),
            Column::new("stars".into(), [1_i32, 2, 3]),
        ]);
        source.rating_column = Some("stars".into());
        assert_eq!(pairs(&read(&source, &all()).unwrap()), ["a 6", "b 5"]);
        assert_eq!(pairs(&read(&source, &at_least(3.0)).unwrap()), ["b 5"]);
    }

    #[test]
    fn parquet_that_holds_something_else() {
        let (_folder, source) = parquet(vec![
            Column::new("what".into(), [5.0, 6.0]),
            Column::new("who".into(), ["b", "a"]),
        ]);
        let message = read(&source, &all()).unwrap_err().to_string();
        assert!(message.contains("column `what`: expected ids"), "{message}");
        fs_err::write(&source.path, b"PAR1 not really PAR1").unwrap();
        let message = read(&source, &all()).unwrap_err().to_string();
        assert!(message.contains("log.parquet"), "{message}");
    }

    #[test]
    fn the_order_of_the_rows_does_not_matter() {
        let mut lines: Vec<_> = RATINGS.lines().collect();
        lines[1..].reverse();
        let reversed = lines.join("\n");
        assert_eq!(
            read_text("ratings.csv", reversed, &all()).unwrap(),
            read_text("ratings.csv", RATINGS, &all()).unwrap()
        );
    }

    #[test]
    fn a_bad_cell_is_named() {
        let bad = |row: &str| format!("userId,movieId,rating\n1,2,3\n{row}\n4,5,6\n");
        for (row, expected) in [
            (",2,3", "row 2: column `userId`: expected an id, found ``"),
            ("1,\"\",3", "row 2: column `movieId`: expected an id, found ``"),
            ("1,2,good", "row 2: column `rating`: expected a finite number, found `good`"),
            ("1,2,NaN", "row 2: column `rating`: expected a finite number, found `NaN`"),
            ("1,2", "row 2: column `rating`: expected a finite number, found ``"),
        ] {
            let message = problem("ratings.csv", bad(row), &at_least(1.0));
            assert!(message.contains(expected), "{row}: {message}");
            assert!(message.contains("ratings.csv"), "{message}");
        }
        let message = problem("ratings.csv", bad("1,2,3,4"), &all());
        assert!(message.contains("ratings.csv: found more fields"), "{message}");
        assert_eq!(read_text("ratings.csv", bad("1,2,good"), &all()).unwrap(), ["1 2", "4 5"]);
    }

    #[test]
    fn a_missing_column_is_named_with_those_there_are() {
        let (_folder, mut source) = file("ratings.csv", RATINGS);
        source.item_column = Some("isbn".into());
        let message = read(&source, &all()).unwrap_err().to_string();
        assert!(message.contains("no column `isbn`; the columns are userId, movieId"), "{message}");
        let message = problem("log.csv", "a,b\n1,2\n", &all());
        assert!(message.contains("--user-column; the columns are a, b"), "{message}");
        let message = problem("log.csv", "userId,movieId\n1,2\n", &at_least(3.0));
        assert!(
            message.contains("ratings for --min-rating? Say it with --rating-column"),
            "{message}"
        );
    }

    #[test]
    fn a_filter_that_leaves_nothing_is_named() {
        let nobody = Filters { min_user_interactions: 20, ..all() };
        for (filters, knob) in [
            (at_least(9.0), "--min-rating"),
            (nobody, "--min-user-interactions"),
            (Filters { min_item_interactions: 3, ..all() }, "--min-item-interactions"),
        ] {
            let message = problem("ratings.csv", RATINGS, &filters);
            assert!(message.contains(knob), "{message}");
        }
        assert!(
            problem("ratings.csv", RATINGS, &Filters { min_user_interactions: 20, ..all() })
                .contains("at least 20 items per user leaves none of the 5 interactions")
        );
    }

    #[test]
    fn files_that_are_no_log() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &Path| {
            let source = Source { path: path.to_owned(), ..Default::default() };
            read(&source, &all()).unwrap_err().to_string()
        };
        assert!(at(folder.path()).contains("neither ratings.csv nor ratings.dat"));
        assert!(at(&folder.path().join("none.csv")).contains("none.csv"));
        assert!(problem("ml-25m.tar", "PK", &all()).contains("expected a .csv"));
        assert!(problem("ratings.csv", "", &all()).contains("ratings.csv"));
        assert!(problem("ratings.csv", "userId,movieId\n", &all()).contains("holds no rows"));
        let mut latin = b"userId,movieId\n1,caf".to_vec();
        latin.write_all(b"\xe9\n").unwrap();
        assert!(problem("ratings.csv", latin, &all()).contains("ratings.csv"));
    }
}
