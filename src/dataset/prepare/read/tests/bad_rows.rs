//! Rows and cells that cannot be read.

use super::*;

#[test]
fn a_quote_in_a_tsv_opens_nothing() {
    let read = |text: &str| {
        let (_folder, source) = file("log.tsv", text);
        read(&named(source), &all()).map(|interactions| pairs(&interactions))
    };
    let text =
        "who\tquery\twhat\nu1\t\"blue\ti1\nu2\tred\ti2\nu3\t\"green\ti3\nu4\t5\" x\t\"i\"4\n";
    assert_eq!(read(text).unwrap(), ["u1 i1", "u2 i2", "u3 i3", "u4 \"i\"4"]);
    // Other programs put texts in quotes.
    let text = "\"who\"\t\"what\"\n\"u1\"\t\"i \"\"1\"\"\"\nu2\t\"i2\"\n";
    assert_eq!(read(text).unwrap(), ["u1 i \"1\"", "u2 i2"]);
    for (text, said) in [
        (
            "who\twhat\nu1\ti1\nu2\t\"i\t2\"\n",
            "row 2: expected 2 fields, found 3; in a .tsv file a tab",
        ),
        (
            "who\tnote\twhat\nu1\t\"a\nb\"\ti1\n",
            "row 1: expected 3 fields, found 2; in a .tsv file a tab",
        ),
        ("who\twhat\nu1\t\"\"\n", "row 1: column `what`: expected an id"),
    ] {
        let message = read(text).unwrap_err().to_string();
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn quotes_that_hide_rows_are_named_and_such_rows_can_be_skipped() {
    const OPEN: &str = "a quote is left open, or one within its field is not doubled";
    const WITHIN: &str = "a quote stands within a field: put the whole field in quotes";
    for (rows, said, kept) in [
        ("u1,\"blue,i1\nu2,red,i2\nu3,\"green,i3\n", OPEN, &["u2 i2"][..]),
        ("u1,\"the \"big,\nblue\" one\",i1\nu2,red,i2\n", WITHIN, &["u2 i2"]),
        ("u1,\"big,\n\"blue\" one\",i1\nu2,red,i2\n", OPEN, &["u2 i2"]),
        ("u1,5\" screen,i1\nu2,red,i2\nu3,7\" screen,i3\n", WITHIN, &["u2 i2"]),
        ("u1,\"Big\" shoes,i1\nu2,red,i2\n", WITHIN, &["u2 i2"]),
    ] {
        let (_folder, source) = file("log.csv", format!("who,query,what\n{rows}"));
        let source = named(source);
        let message = read(&source, &all()).unwrap_err().to_string();
        assert!(message.contains(&format!("log.csv: row 1: {said}")), "{message}");
        assert!(message.ends_with("; --skip-bad-rows skips such rows"), "{message}");
        let skip = Filters { skip_bad_rows: 2, ..all() };
        assert_eq!(pairs(&read(&source, &skip).unwrap()), kept);
    }
    let text = "who,query,what\nu1,\"5\"\" screen,\nblack\",i1\nu2,\"\",i2\n";
    let (_folder, source) = file("log.csv", text);
    assert_eq!(pairs(&read(&named(source), &all()).unwrap()), ["u1 i1", "u2 i2"]);
}

#[test]
fn a_line_break_in_quotes_ends_no_row_whether_rows_are_skipped_or_not() {
    let row = |at: usize| match at {
        700 => format!("u{at}\n"),
        _ if at.is_multiple_of(4) => format!("u{at},i{at},\"good,\n\n\"\"really\"\" \n{at}\"\r\n"),
        _ => format!("u{at},i{at},fine\n"),
    };
    let text: String = (1..=800).map(row).collect();
    let (_folder, source) = file("log.csv", format!("who,what,review\n{text}"));
    let source = named(source);
    let message = read(&source, &all()).unwrap_err().to_string();
    assert!(message.contains("log.csv: row 700: expected 3 fields, found 1"), "{message}");
    let skip = Filters { skip_bad_rows: 1, ..all() };
    let expected: Vec<_> =
        (1..=800).filter(|at| *at != 700).map(|at| format!("u{at} i{at}")).collect();
    let mut read = pairs(&read(&source, &skip).unwrap());
    read.sort_by_key(|pair| pair[1..].split_once(' ').unwrap().0.parse::<u32>().unwrap());
    assert_eq!(read, expected);
}

#[test]
fn a_line_break_in_quotes_may_be_part_of_an_id() {
    let text = "who,what\n1,\"a\nb\"\n2,c\n1,\"a\nb\"\n";
    for skip_bad_rows in [0, 1] {
        let (_folder, source) = file("log.csv", text);
        let filters = Filters { skip_bad_rows, ..all() };
        assert_eq!(pairs(&read(&named(source), &filters).unwrap()), ["1 a\nb", "2 c"]);
    }
}

#[test]
fn a_bad_cell_is_named() {
    let bad = |row: &str| format!("userId,movieId,rating\n1,2,3\n{row}\n4,5,6\n");
    for (row, expected) in [
        (",2,3", "row 2: column `userId`: expected an id, found ``"),
        ("1,\"\",3", "row 2: column `movieId`: expected an id, found ``"),
        ("1,2,good", "row 2: column `rating`: expected a finite number, found `good`"),
        ("1,2,\"3\n4\"", "found `3\\n4`"),
        ("1,2,NaN", "row 2: column `rating`: expected a finite number, found `NaN`"),
        ("1,2", "row 2: expected 3 fields, found 2; an empty field needs its separator too"),
        ("1,2,3,4", "row 2: expected 3 fields, found 4"),
        ("1,\"2,3", "row 2: a quote is left open"),
    ] {
        let message = problem("ratings.csv", bad(row), &at_least(1.0));
        assert!(message.contains(expected), "{row}: {message}");
        assert!(message.contains("ratings.csv"), "{message}");
    }
    assert_eq!(read_text("ratings.csv", bad("1,2,good"), &all()).unwrap(), ["1 2", "4 5"]);
}

#[test]
fn one_column_is_one_thing() {
    let message = problem("log.csv", "userId,movieId,userId\n1,2,3\n", &all());
    assert!(message.contains("log.csv: column `userId` is there twice; rename one"), "{message}");
}

#[test]
fn a_comma_too_many_moves_no_field_into_another_column() {
    let titled = |title: &str| {
        format!("title,userId,movieId,rating\nHeat,1,2,3\n{title},1,3,3\nHeat,4,5,3\n")
    };
    let message = problem("ratings.csv", titled("Matrix, The"), &all());
    assert!(message.contains("row 2: expected 4 fields, found 5"), "{message}");
    let quoted = read_text("ratings.csv", titled("\"Matrix, The\""), &all()).unwrap();
    assert_eq!(quoted, ["1 2", "1 3", "4 5"]);
}

/// `rows` good rows, then one that is none, then as many again.
fn broken(rows: usize, row: &str) -> String {
    let good = |from: usize| (from..from + rows).map(|at| format!("{at},\"{}\",3\n", at % 7));
    let header = std::iter::once("userId,movieId,rating\n".to_owned());
    header.chain(good(0)).chain([format!("{row}\n")]).chain(good(rows)).collect()
}

#[test]
fn a_bad_row_far_into_a_file_is_named() {
    for (row, expected) in [
        ("x", "row 101: expected 3 fields, found 1"),
        ("1,2", "row 101: expected 3 fields, found 2"),
        ("1,2,3,4,5", "row 101: expected 3 fields, found 5"),
        ("1,\"2,3", "row 101: "),
        ("1,\"2\" x,3", "row 101: a quote stands within a field"),
        ("1,2\" x,3", "row 101: a quote "),
        ("1,2,three", "row 101: column `rating`: expected a finite number, found `three`"),
        ("\n\r\n,2,3", "row 101: column `userId`: expected an id"),
    ] {
        let message = problem("ratings.csv", broken(100, row), &at_least(1.0));
        assert!(message.contains("ratings.csv") && message.contains(expected), "{message}");
    }
    let text = broken(100, "1,caf\u{e9},3");
    let latin_1: Vec<u8> = text.chars().map(|char| char as u8).collect();
    let message = problem("ratings.csv", latin_1, &all());
    assert!(message.contains("row 101: is not UTF-8"), "{message}");
    // Nothing closes this one.
    let text = broken(100, "1,\"2,3").replace("\",3", ",3").replace(",\"", ",").replacen(
        ",3\n1,2,3",
        ",3\n1,\"2,3",
        1,
    );
    let message = problem("ratings.csv", text, &all());
    assert!(message.contains("row 101: a quote is left open"), "{message}");
}

#[test]
fn bad_rows_are_skipped_up_to_a_number() {
    let good = read_text("ratings.csv", broken(100, ""), &at_least(1.0)).unwrap();
    assert_eq!(good.len(), 200);
    let skip = |skip_bad_rows| Filters { skip_bad_rows, ..at_least(1.0) };
    for row in
        ["x", "1,\"2,3", "1,2,3,4,5", "1,2,three", ",2,3", "1,\"2\" x,3", "1,2\" x,3\n1,\"\"2,3"]
    {
        let text = broken(100, row);
        assert_eq!(read_text("ratings.csv", &text, &skip(2)).unwrap(), good, "{row}");
    }
    let message = problem("ratings.csv", broken(100, "x\ny\n1,2,bad"), &skip(2));
    assert!(message.contains("row 103: column `rating`"), "{message}");
    assert!(message.contains("2 rows before it were skipped"), "{message}");
}

#[test]
fn a_cut_last_line_is_named() {
    let message = problem("ratings.csv", "userId,movieId,rating\n1,2,3\n4,5", &all());
    assert!(message.contains("row 2: expected 3 fields, found 2"), "{message}");
}
