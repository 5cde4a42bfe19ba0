use super::super::{Catalogue, Statistics};
use super::*;

fn sessions(pairs: &[(u32, u32, bool)], split: Vec<Split>, num_actions: usize) -> Sessions {
    let part = |is_hidden: bool| {
        let pairs = pairs.iter().filter(move |pair| pair.2 == is_hidden);
        ActionSets::from_pairs(split.len(), pairs.map(|&(context, action, _)| (context, action)))
    };
    Sessions { observed: part(false), hidden: part(true), split, num_actions }
}

fn dataset() -> Dataset {
    let pairs = [(0, 0, false), (0, 2, true), (1, 1, true), (1, 0, false), (2, 0, true)];
    let split = vec![Split::Train, Split::Test, Split::Validation];
    let sessions = sessions(&pairs, split, 3);
    let statistics = Statistics::of(&sessions);
    let contexts = DataFrame::new_infer_height(vec![
        Column::new("context".into(), [0_u32, 1, 2]),
        Column::new("user_id".into(), ["ada", "bob", "eve"]),
    ]);
    let actions = DataFrame::new_infer_height(vec![
        Column::new("action".into(), [0_u32, 1, 2]),
        Column::new("item_id".into(), [70_i64, 5, 12]),
        Column::new("title".into(), [Some("Heat"), None, Some("Jumanji")]),
    ]);
    let (contexts, actions) = (contexts.unwrap(), actions.unwrap());
    Dataset { sessions, times: None, contexts, actions, statistics }
}

pub(in crate::dataset) fn written() -> (tempfile::TempDir, Dataset) {
    let (folder, dataset) = (tempfile::tempdir().unwrap(), dataset());
    write(&dataset, folder.path()).unwrap();
    (folder, dataset)
}

#[test]
fn what_is_written_is_read_back() {
    let (folder, dataset) = written();
    assert_eq!(read_sessions(folder.path()).unwrap(), dataset.sessions);
}

#[test]
fn times_are_read_back_in_the_order_of_the_sessions() {
    let (folder, dataset) = written();
    let sessions = &dataset.sessions;
    assert_eq!(read_times(folder.path(), sessions).unwrap(), None);
    let times = Times { observed: vec![10, -20], hidden: vec![30, 40, 50] };
    for row_group in [1, 100] {
        let path = folder.path().join(INTERACTIONS);
        write_interactions(sessions, Some(&times), &path, row_group).unwrap();
        assert_eq!(read_sessions(folder.path()).unwrap(), *sessions);
        assert_eq!(read_times(folder.path(), sessions).unwrap().unwrap(), times);
    }
    let table = read_columns(&folder.path().join(INTERACTIONS), &["action", "time"]).unwrap();
    let times = table.column("time").unwrap().i64().unwrap().into_no_null_iter();
    // By context, then action: the second context has hidden action 1 and observed action 0.
    assert_eq!(times.collect::<Vec<_>>(), [10, 30, -20, 40, 50]);
}

#[test]
fn row_groups_are_read_one_after_the_other() {
    let (folder, dataset) = written();
    let path = folder.path().join(INTERACTIONS);
    // A group begins with a context, or, when another program wrote it, anywhere.
    write_interactions(&dataset.sessions, None, &path, 3).unwrap();
    assert_eq!(row_groups(&path, &["context"]).unwrap().count(), 2);
    assert_eq!(read_sessions(folder.path()).unwrap(), dataset.sessions);
    let mut table = interactions(&dataset.sessions, None, 0..3).unwrap();
    let in_groups = |rows: usize, table: &DataFrame| {
        let file = fs::File::create(&path).unwrap();
        let mut writer = ParquetWriter::new(file).batched(table.schema()).unwrap();
        for start in (0..table.height()).step_by(rows) {
            writer.write_batch(&table.slice(i64::try_from(start).unwrap(), rows)).unwrap();
        }
        writer.finish().unwrap();
    };
    for rows in 1..5 {
        in_groups(rows, &table);
        assert_eq!(read_sessions(folder.path()).unwrap(), dataset.sessions, "{rows} a group");
    }
    // Order is checked across groups, and rows are counted on.
    with(&mut table, Column::new("action".into(), [0_u32, 2, 1, 1, 0]));
    in_groups(3, &table);
    let message = read_sessions(folder.path()).unwrap_err().to_string();
    assert!(message.contains("row 4: column `action`"), "{message}");
}

/// What reading says after `change` was applied to one table.
fn problem(name: &str, change: impl FnOnce(&mut DataFrame)) -> String {
    let (folder, dataset) = written();
    let mut table = match name {
        INTERACTIONS => interactions(&dataset.sessions, None, 0..3).unwrap(),
        CONTEXTS => dataset.contexts,
        _ => dataset.actions,
    };
    change(&mut table);
    write_table(&mut table, &folder.path().join(name)).unwrap();
    let message = match (read_sessions(folder.path()), Catalogue::read(folder.path())) {
        (Err(error), _) | (_, Err(error)) => error.to_string(),
        _ => panic!("{name} was accepted"),
    };
    assert!(message.contains(name), "{message}");
    message
}

fn with(table: &mut DataFrame, column: Column) {
    table.with_column(column).unwrap();
}

#[test]
fn damaged_tables_are_errors() {
    let message = problem(INTERACTIONS, |table| *table = table.drop("hidden").unwrap());
    assert!(message.contains("no column `hidden`"), "{message}");
    for (column, expected) in [
        (Column::new("context".into(), [0_i64, 0, 1, 1, 2]), "expected u32"),
        (Column::new("context".into(), [0_u32, 0, 2, 2, 2]), "row 3: column `context`"),
        (Column::new("context".into(), [0_u32, 0, 1, 1, 1]), "row 5: column `split`"),
        (Column::new("context".into(), [Some(0_u32), None, Some(1), Some(1), Some(2)]), "empty"),
        (Column::new("action".into(), [0_u32, 3, 0, 1, 0]), "row 2: column `action`"),
        (Column::new("action".into(), [0_u32, 2, 1, 1, 0]), "row 4: column `action`"),
        (Column::new("hidden".into(), [1_i64, 0, 0, 1, 1]), "expected booleans"),
        (Column::new("split".into(), ["train", "test", "test", "test", "train"]), "row 2"),
        (Column::new("split".into(), ["dev"; 5]), "row 1: column `split`"),
    ] {
        let message = problem(INTERACTIONS, |table| with(table, column));
        assert!(message.contains(expected), "{message}");
    }
    let message = problem(INTERACTIONS, |table| *table = table.head(Some(4)));
    assert!(message.contains("holds 2 contexts"), "{message}");
    let twice = Column::new("user_id".into(), ["ada", "ada", "eve"]);
    assert!(problem(CONTEXTS, |table| with(table, twice)).contains("twice"));
    let order = Column::new("action".into(), [1_u32, 0, 2]);
    assert!(problem(ACTIONS, |table| with(table, order)).contains("does not count"));
}

#[test]
fn cut_and_missing_files_are_errors() {
    for name in [INTERACTIONS, CONTEXTS, ACTIONS] {
        let (folder, _) = written();
        let path = folder.path().join(name);
        let bytes = fs::read(&path).unwrap();
        for keep in [0, 3, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&path, &bytes[..keep]).unwrap();
            let message = read_sessions(folder.path()).unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
        fs::remove_file(&path).unwrap();
        let message = read_sessions(folder.path()).unwrap_err().to_string();
        assert!(message.contains(name), "{message}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join(ACTIONS)).unwrap();
    let message = write(&dataset(), folder.path()).unwrap_err().to_string();
    assert!(message.contains("actions.parquet"), "{message}");
}
