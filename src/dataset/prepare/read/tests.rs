use std::io::Write as _;
use std::path::{Path, PathBuf};

use polars::prelude::*;

use super::*;

mod bad_rows;
mod times;

const RATINGS: &str = "userId,movieId,rating,timestamp\n\
                       2,10,5.0,1\n2,30,3.5,2\n1,20,0.5,3\n1,10,4.0,4\n2,10,1.0,5\n";

/// Every interaction counts.
fn all() -> Filters {
    Filters { min_user_interactions: 1, ..Filters::default() }
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

/// Title and group of each item.
fn labels(interactions: &Interactions) -> Vec<(Option<&str>, Option<&str>)> {
    let labels = interactions.labels.iter().flatten();
    labels.map(|label| (label.title.as_deref(), label.group.as_deref())).collect()
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
    let titles =
        "movieId,title,genres\n30,\"Postino, Il (1994)\",(no genres listed)\n10,Heat (1995),A|B\n";
    fs_err::write(folder.path().join("movies.csv"), titles).unwrap();
    for source in [source, Source { path: folder.path().to_owned(), ..Default::default() }] {
        let interactions = read(&source, &all()).unwrap();
        assert_eq!(pairs(&interactions), ["1 10", "1 20", "2 10", "2 30"]);
        assert_eq!(interactions.users.dtype(), &DataType::Int64);
        let expected =
            [(Some("Heat (1995)"), Some("A")), (None, None), (Some("Postino, Il (1994)"), None)];
        assert_eq!(labels(&interactions), expected);
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
        let expected = [(Some("Léon: The Pro (1994)"), Some("Crime")), (None, None)];
        assert_eq!(labels(&interactions), expected);
    }
    assert!(problem("ratings.dat", "1::10::5::9\n2\t20\t3\t9\n", &all()).contains("row 2"));
    assert_eq!(read_text("ratings.dat", "\n1::10::5::9\n", &all()).unwrap(), ["1 10"]);
    assert!(problem("log.dat", "user\titem\n1\t10\n", &all()).contains("name it .csv"));
}

#[test]
fn a_table_without_names_of_its_columns_says_that_they_are_expected() {
    let problem = problem("log.csv", "1,10,3.5\n2,20,4\n", &all());
    assert!(problem.contains("it holds 1, 10, 3.5: put a row of names before it"), "{problem}");
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

/// The file compressed, beside it.
fn gzipped(path: &Path) -> PathBuf {
    let to = PathBuf::from(format!("{}.gz", path.display()));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, &fs_err::read(path).unwrap()).unwrap();
    fs_err::write(&to, encoder.finish().unwrap()).unwrap();
    to
}

#[test]
fn gzip() {
    let (folder, _) = file("log.csv", "who,what\n1,2\n");
    let path = gzipped(&folder.path().join("log.csv"));
    let source = named(Source { path, ..Default::default() });
    assert_eq!(pairs(&read(&source, &all()).unwrap()), ["1 2"]);
}

#[test]
fn reading_ends_where_somebody_asks_for_it() {
    let (_folder, source) = file("ratings.csv", RATINGS);
    let ended = crate::interrupt::interruptible(|| true, || read(&source, &all()));
    assert!(matches!(ended, Err(crate::error::Error::Interrupted)));
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
    assert!(message.contains("column `what`: expected integers or text, found f64"), "{message}");
    assert!(message.contains("cast to integers, for example with .astype('Int64')"), "{message}");
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
fn twitch_has_no_header_and_counts_a_streamer_once() {
    let rows = "1,3390,mithrain,154,156\n1,4041,mithrain,160,170\n2,17,alptv,1,2\n\
                5000000000,18,alptv,1,2\n";
    for name in ["full_a.csv", "100k_a.csv"] {
        assert_eq!(
            read_text(name, rows, &all()).unwrap(),
            ["1 mithrain", "2 alptv", "5000000000 alptv"]
        );
    }
    let (_folder, source) = file("full_a.csv", rows);
    let streams = Source { item_column: Some("stream".into()), ..source };
    assert_eq!(read(&streams, &all()).unwrap().items.len(), 4);
}

#[test]
fn goodreads_counts_the_books_that_were_read() {
    let rows = "user_id,book_id,is_read,rating,is_reviewed\n\
                0,948,1,5,0\n0,947,0,0,0\n1,948,1,0,1\n1,949,1,2,0\n";
    let read = |filters: Filters| read_text("goodreads_interactions.csv", rows, &filters).unwrap();
    assert_eq!(read(all()), ["0 948", "1 948", "1 949"]);
    let rows_of = |rows: &str| Filters { rows: rows.parse().unwrap(), ..all() };
    assert_eq!(read(rows_of("all")), ["0 947", "0 948", "1 948", "1 949"]);
    assert_eq!(read(rows_of("is_reviewed=1")), ["1 948"]);
    assert_eq!(read(Filters { min_rating: Some(2.0), ..all() }), ["0 948", "1 949"]);
    let message = problem("goodreads_interactions.csv", rows, &rows_of("is_red=1"));
    assert!(message.contains("no column `is_red`"), "{message}");
    let message = problem("goodreads_interactions.csv", rows, &rows_of("is_read=yes"));
    assert!(message.contains("`is_read=yes` leaves none of the 4"), "{message}");
    assert!("is_read".parse::<crate::dataset::RowFilter>().is_err());
}

#[test]
fn archives_are_read_where_they_are() {
    let (folder, _) = file("readme", "");
    let path = folder.path().join("ml-tiny.zip");
    let mut archive = ::zip::ZipWriter::new(fs_err::File::create(&path).unwrap());
    let titles = "movieId,title\n10,Heat (1995)\n";
    for (name, text) in [("ml-tiny/movies.csv", titles), ("ml-tiny/ratings.csv", RATINGS)] {
        archive.start_file(name, ::zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    }
    archive.finish().unwrap();
    let source = Source { path: path.clone(), ..Default::default() };
    let interactions = read(&source, &all()).unwrap();
    assert_eq!(pairs(&interactions), ["1 10", "1 20", "2 10", "2 30"]);
    assert_eq!(labels(&interactions)[0], (Some("Heat (1995)"), None));
    assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 2);

    let refused = read(&Source { max_unpacked_mib: Some(0), ..source.clone() }, &all());
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("ratings.csv: unpacks to more than 0 MiB"), "{message}");

    let bytes = fs_err::read(&path).unwrap();
    fs_err::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let message = read(&source, &all()).unwrap_err().to_string();
    assert!(message.contains("ml-tiny.zip: cannot be unpacked"), "{message}");
}

/// A Parquet file of users and items.
fn write(path: &Path, users: &[i64], items: &[&str]) {
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    let mut table = DataFrame::new_infer_height(vec![
        Column::new("who".into(), users),
        Column::new("what".into(), items),
    ]);
    let file = fs_err::File::create(path).unwrap();
    ParquetWriter::new(file).finish(table.as_mut().unwrap()).unwrap();
}

#[test]
fn no_file_of_a_folder_or_of_a_pattern_is_left_unread() {
    let (folder, source) = file("log.csv", "who,what\n9,z\n");
    let folder = folder.path();
    write(&folder.join("1.parquet"), &[1], &["a"]);
    write(&folder.join("2.parquet/part-0.parquet"), &[2], &["b"]);
    write(&folder.join("2.parquet/_temporary/part-1.parquet"), &[8], &["y"]);
    let of = |pattern: &str| {
        let source = named(Source { path: folder.join(pattern), ..source.clone() });
        read(&source, &all()).map(|interactions| pairs(&interactions))
    };
    assert_eq!(of("*.parquet").unwrap(), ["1 a", "2 b"]);
    assert_eq!(of("2*").unwrap(), ["2 b"]);
    assert_eq!(of("*").unwrap(), ["1 a", "2 b", "9 z"]);
    let refused = |pattern: &str, said: &str| {
        let message = of(pattern).unwrap_err().to_string();
        assert!(message.contains(said), "{message}");
    };
    refused("", "log.csv, which would not be read: name the files of one kind with a pattern");
    fs_err::create_dir(folder.join("3")).unwrap();
    refused("*", "3, which holds no .parquet files");
}

#[test]
fn folders_and_patterns_of_files_are_one_log() {
    let (folder, source) = file("_SUCCESS", "");
    let folder = folder.path();
    write(&folder.join("country=se/part-1.snappy.parquet"), &[1, 2], &["a", "b"]);
    write(&folder.join("country=no/day=2/part-0.parquet"), &[1, 3], &["c", "a"]);
    write(&folder.join("_temporary/part-9.parquet"), &[9], &["z"]);
    let source = named(Source { path: folder.to_owned(), ..source });
    assert_eq!(pairs(&read(&source, &all()).unwrap()), ["1 a", "1 c", "2 b", "3 a"]);
    // Links are followed, but not in circles.
    #[cfg(unix)]
    for name in ["again", "and-again"] {
        std::os::unix::fs::symlink(".", folder.join(name)).unwrap();
    }
    assert_eq!(source.files().unwrap().len(), 2);
    let by_country = Filters { rows: "country=se".parse().unwrap(), ..all() };
    assert_eq!(pairs(&read(&source, &by_country).unwrap()), ["1 a", "2 b"]);

    for (name, text) in [("a.csv", "who,what\n1,x\n"), ("b.csv", "what,who\nx,2\n")] {
        fs_err::write(folder.join(name), text).unwrap();
    }
    let source = Source { path: folder.join("*.csv"), ..source };
    assert_eq!(pairs(&read(&source, &all()).unwrap()), ["1 x", "2 x"]);
    assert_eq!(digest(&source).unwrap().len(), 64);
    let none = Source { path: folder.join("*.tsv"), ..source };
    assert!(read(&none, &all()).unwrap_err().to_string().contains("matches no file"));
}

#[test]
fn the_types_in_a_recbole_header_are_no_part_of_the_names() {
    let text = "who:token\twhat:token\trating:float\n1\ta:b\t5.0\n2\tc\t1\n";
    let (folder, source) = file("log.inter", text);
    let packed = gzipped(&folder.path().join("log.inter"));
    for path in [source.path.clone(), packed] {
        let source = named(Source { path, ..source.clone() });
        assert_eq!(pairs(&read(&source, &all()).unwrap()), ["1 a:b", "2 c"]);
    }
    // Elsewhere a colon is a letter like any other.
    let message = problem("log.tsv", text, &all());
    assert!(message.contains("the columns are who:token, what:token, rating:float"), "{message}");
}

#[test]
fn a_cut_gzip_file_is_named_with_how_far_it_was_read() {
    let rows: Vec<_> = (0..2000).map(|at| format!("{at},{}", at * 7919 % 1013)).collect();
    let (folder, _) = file("log.csv", format!("who,what\n{}\n", rows.join("\n")));
    let path = gzipped(&folder.path().join("log.csv"));
    let bytes = fs_err::read(&path).unwrap();
    fs_err::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let source = named(Source { path, ..Default::default() });
    let message = read(&source, &all()).unwrap_err().to_string();
    assert!(message.contains("log.csv.gz: cannot be read beyond row "), "{message}");
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
    assert!(message.contains("ratings for --min-rating? Say it with --rating-column"), "{message}");
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
            .contains("at least 20 items per user leaves none of the 4 interactions")
    );
}

#[test]
fn files_that_are_no_log() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &Path| {
        let source = Source { path: path.to_owned(), ..Default::default() };
        read(&source, &all()).unwrap_err().to_string()
    };
    assert!(at(folder.path()).contains("holds no .parquet files, nor any of ratings.csv"));
    assert!(at(&folder.path().join("none.csv")).contains("none.csv"));
    assert!(problem("ml-25m.tar", "PK", &all()).contains("expected a .csv"));
    assert!(problem("ratings.csv", "", &all()).contains("ratings.csv"));
    assert!(problem("ratings.csv", "userId,movieId\n", &all()).contains("holds no rows"));
    let (folder, _) = file("log.csv", "who,what\n1,2\n");
    let packed = fs_err::read(gzipped(&folder.path().join("log.csv"))).unwrap();
    let message = problem("log.csv", packed, &all());
    assert!(message.contains("log.csv: is compressed by gzip: name it /"), "{message}");
    assert!(message.ends_with("log.csv.gz"), "{message}");
    let message = problem("log.csv", "who,what\r1,2\r".repeat(9), &all());
    assert!(message.contains("log.csv: its lines end in a carriage return alone"), "{message}");
    let header: Vec<_> = (0..60).map(|at| format!("c{at}")).collect();
    let message = problem("log.csv", header.join(","), &all());
    assert!(message.contains("the columns are c0, c1, "), "{message}");
    assert!(message.ends_with(", c29 and 30 more"), "{message}");
    let message = problem("log.csv", "who;what;".repeat(20), &all());
    assert!(message.contains("who;what;who;wh…: in a .csv file `,`"), "{message}");
    let mut latin = b"userId,movieId\n1,caf".to_vec();
    latin.write_all(b"\xe9\n").unwrap();
    assert!(problem("ratings.csv", latin, &all()).contains("ratings.csv"));
}
