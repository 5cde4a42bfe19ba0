use polars::prelude::*;

use super::*;

/// The latest time of each pair, in the order of [`pairs`].
fn times(source: &Source, filters: &Filters) -> Result<Vec<i64>> {
    read(source, filters).map(|interactions| interactions.times.unwrap())
}

#[test]
fn the_latest_time_of_a_pair_is_kept() {
    let (_folder, source) = file("ratings.csv", RATINGS);
    assert_eq!(read(&source, &all()).unwrap().times, None);
    let source = Source { time_column: Some("timestamp".into()), ..source };
    assert_eq!(pairs(&read(&source, &all()).unwrap()), ["1 10", "1 20", "2 10", "2 30"]);
    assert_eq!(times(&source, &all()).unwrap(), [4, 3, 5, 2]);
    // Or the first, as a split by time needs.
    let first = Source { first_times: true, ..source.clone() };
    assert_eq!(times(&first, &all()).unwrap(), [4, 3, 1, 2]);
    // A rating that does not count has no time either.
    assert_eq!(times(&source, &at_least(3.5)).unwrap(), [4, 1, 2]);
    let filters = Filters { min_item_interactions: 2, ..all() };
    assert_eq!(times(&source, &filters).unwrap(), [4, 5]);
}

#[test]
fn times_follow_their_pairs_whatever_the_order() {
    // Users and items come in no order, and often again: a table of each pair's latest says all.
    let mut stream = crate::seed::Seed(3).stream(crate::seed::Purpose::Synthetic, 0, 0);
    let mut latest = std::collections::BTreeMap::new();
    let mut text = String::from("time,who,what\n");
    for _ in 0..3000 {
        let (user, item, time) = (stream.below(30), stream.below(40), i64::from(stream.below(999)));
        text += &format!("{time},{user},{item}\n");
        let kept = latest.entry((user, item)).or_insert(time);
        *kept = time.max(*kept);
    }
    let (_folder, source) = file("log.csv", text);
    let source = named(Source { time_column: Some("time".into()), ..source });
    let expected: Vec<i64> = latest.into_values().collect();
    assert_eq!(times(&source, &all()).unwrap(), expected);

    let dataset = crate::dataset::assemble(
        read(&source, &all()).unwrap(),
        &crate::dataset::SplitSettings::default(),
    );
    let dataset = dataset.unwrap();
    let (sessions, times) = (&dataset.sessions, dataset.times.as_ref().unwrap());
    let items: Vec<i64> =
        dataset.actions.column("item_id").unwrap().i64().unwrap().into_no_null_iter().collect();
    // By user, then item, as above.
    let mut found = Vec::new();
    for context in sessions.observed.contexts() {
        for (sets, times) in
            [(&sessions.observed, &times.observed), (&sessions.hidden, &times.hidden)]
        {
            let of_context = sets.of(context).iter().zip(sets.values_of(context, times));
            found.extend(of_context.map(|(&a, time)| (context, items[a as usize], *time)));
        }
    }
    found.sort_unstable();
    assert_eq!(found.into_iter().map(|(_, _, time)| time).collect::<Vec<_>>(), expected);
}

#[test]
fn times_are_told_by_their_size() {
    let rows = [
        ("1500000000", 1_500_000_000),
        ("1500000000.9", 1_500_000_000),
        ("1500000000999", 1_500_000_000),
        ("1.5e15", 1_500_000_000),
        ("1500000000000000000", 1_500_000_000),
        ("-1.5", -2),
    ];
    for (cell, expected) in rows {
        let (_folder, source) = file("log.csv", format!("who,what,when\n1,2,{cell}\n"));
        let source = named(Source { time_column: Some("when".into()), ..source });
        assert_eq!(times(&source, &all()).unwrap(), [expected], "{cell}");
    }
}

#[test]
fn times_of_parquet_are_numbers_dates_or_times() {
    let milliseconds = [1_500_000_000_999_i64, -1, 0];
    let at = |unit, factor: i64| {
        let cells = Column::new("when".into(), milliseconds.map(|time| time * factor));
        cells.cast(&DataType::Datetime(unit, None)).unwrap()
    };
    let days = Column::new("when".into(), [17_361_i32, -1, 0]).cast(&DataType::Date).unwrap();
    let zoned = Column::new("when".into(), milliseconds.map(|time| time * 1000));
    let zoned = zoned.i64().unwrap().clone();
    let zoned = zoned.into_datetime(TimeUnit::Microseconds, Some(TimeZone::UTC)).into_series();
    for (column, expected) in [
        (zoned.into_column(), [1_500_000_000, -1, 0]),
        (Column::new("when".into(), [1_500_000_000_u32, 5, 0]), [1_500_000_000, 5, 0]),
        (at(TimeUnit::Milliseconds, 1), [1_500_000_000, -1, 0]),
        (at(TimeUnit::Nanoseconds, 1_000_000), [1_500_000_000, -1, 0]),
        (days, [17_361 * 86_400, -86_400, 0]),
    ] {
        let ids = Column::new("who".into(), [1_i64, 2, 3]);
        let items = Column::new("what".into(), [7_i64; 3]);
        let (_folder, source) = parquet(vec![ids, items, column.clone()]);
        let source = Source { time_column: Some("when".into()), ..source };
        assert_eq!(times(&source, &all()).unwrap(), expected, "{column:?}");
        // Nothing else is a time.
        let rated = Source { rating_column: Some("when".into()), time_column: None, ..source };
        if column.dtype().is_temporal() {
            let message = read(&rated, &at_least(1.0)).unwrap_err().to_string();
            assert!(message.contains("column `when`: expected numbers"), "{message}");
        }
    }
}

#[test]
fn times_may_be_written_as_iso_8601() {
    let cells = ["2024-01-31T17:05:00Z", "2024-01-31 17:05:00", "2024-01-31", "1706659201"];
    let expected = [1_706_720_700, 1_706_720_700, 1_706_659_200, 1_706_659_201];
    let rows = cells.iter().enumerate().map(|(user, cell)| format!("{user},7,{cell}\n"));
    let text = std::iter::once("who,what,when\n".to_owned()).chain(rows).collect::<String>();
    let ids = Column::new("who".into(), [0_i64, 1, 2, 3]);
    let items = Column::new("what".into(), [7_i64; 4]);
    for (_folder, source) in
        [file("log.csv", text), parquet(vec![ids, items, Column::new("when".into(), cells)])]
    {
        let source = named(Source { time_column: Some("when".into()), ..source });
        assert_eq!(times(&source, &all()).unwrap(), expected);
    }
}

#[test]
fn rows_may_be_chosen_by_their_time() {
    let (_folder, source) = parquet(vec![
        Column::new("who".into(), [1_i64, 2, 3]),
        Column::new("what".into(), [7_i64; 3]),
        Column::new("day".into(), [20_240_131_i64, 20_240_201, 20_240_131]),
    ]);
    let source = Source { time_column: Some("day".into()), ..source };
    let filters = Filters { rows: "day=20240131".parse().unwrap(), ..all() };
    assert_eq!(times(&source, &filters).unwrap(), [20_240_131; 2]);
}

#[test]
fn what_is_no_time_is_named() {
    let text = |cell: &str| format!("who,what,when\n1,2,3\n1,2,{cell}\n");
    for cell in ["", "31/01/2024", "inf", "NaN", "1e30"] {
        let (_folder, source) = file("log.csv", text(cell));
        let source = named(Source { time_column: Some("when".into()), ..source });
        let message = read(&source, &all()).unwrap_err().to_string();
        let expected = "log.csv: row 2: column `when`: expected a time, as a number of seconds";
        assert!(message.contains(expected), "{message}");
        let skip = Filters { skip_bad_rows: 1, ..all() };
        assert_eq!(times(&source, &skip).unwrap(), [3]);
        let missing = Source { time_column: Some("then".into()), ..source };
        let message = read(&missing, &all()).unwrap_err().to_string();
        assert!(message.contains("no column `then`"), "{message}");
    }
}
