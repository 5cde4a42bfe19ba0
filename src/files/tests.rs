use super::*;

#[test]
fn a_folder_appears_whole_or_not_at_all_and_leftovers_of_the_dead_go() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("data");
    let at_work = StagedFolder::new(&target).unwrap();
    let alive = at_work.path().file_name().unwrap().to_str().unwrap().to_owned();
    fs::create_dir(root.path().join(".data.partial-1-0")).unwrap();
    fs::write(root.path().join(".other.toml.partial-1-0"), "half").unwrap();
    fs::write(root.path().join(".theirs.partial-x"), "not ours").unwrap();
    let staged = StagedFolder::new(&target).unwrap();
    fs::write(staged.path().join("file"), "1").unwrap();
    assert!(!target.exists());
    drop(staged);
    let names = || {
        let entries = fs::read_dir(root.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), [&alive, ".theirs.partial-x"]);

    for content in ["1", "2"] {
        let staged = StagedFolder::new(&target).unwrap();
        fs::write(staged.path().join("file"), content).unwrap();
        staged.commit().unwrap();
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), content);
    }
    assert_eq!(names(), [&alive, ".theirs.partial-x", "data"]);
    drop(at_work);
    assert_eq!(names(), [".theirs.partial-x", "data"]);
}

#[test]
fn parents_that_were_made_for_what_failed_go_with_it() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("theirs")).unwrap();
    drop(StagedFolder::new(&root.path().join("theirs/new/data")).unwrap());
    assert!(root.path().join("theirs").exists() && !root.path().join("theirs/new").exists());
    StagedFolder::resume(&root.path().join("new/data")).unwrap().commit().unwrap();
    assert!(root.path().join("new/data").exists());
}

#[test]
fn a_replacement_that_was_killed_halfway_loses_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (target, old) = (root.path().join("data"), root.path().join(".data.old"));
    let read = || fs::read_to_string(target.join("file")).unwrap();
    let aside = |content: &str| {
        fs::create_dir(&old).unwrap();
        fs::write(old.join("file"), content).unwrap();
    };
    // Killed before the new folder had the name.
    aside("old");
    drop(StagedFolder::new(&root.path().join("other")).unwrap());
    assert!(old.exists());
    drop(StagedFolder::new(&target).unwrap());
    assert_eq!(read(), "old");
    // Killed after that.
    aside("older");
    drop(StagedFolder::resume(&target).unwrap());
    assert_eq!((read().as_str(), old.exists()), ("old", false));
}

#[test]
fn a_replacement_that_is_at_work_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("data");
    let alive = StagedFolder::new(&target).unwrap();
    let old = set_aside(&target).unwrap();
    fs::create_dir(&old).unwrap();
    drop(StagedFolder::new(&target).unwrap());
    assert!(old.exists() && !target.exists());
    drop(alive);
    drop(StagedFolder::new(&target).unwrap());
    assert!(!old.exists() && target.exists());
}

#[test]
fn a_file_that_came_after_another_is_told_from_it() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("lock");
    let file = fs::File::create(&path).unwrap();
    assert!(is_at(&file, &path));
    fs::remove_file(&path).unwrap();
    assert!(!is_at(&file, &path));
    let other = fs::File::create(&path).unwrap();
    assert!(!is_at(&file, &path) && is_at(&other, &path));
}

#[test]
fn writers_in_one_folder_take_nothing_of_each_other_for_a_leftover() {
    let root = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let path = root.path().join(thread.to_string());
            scope.spawn(move || {
                for _ in 0..250 {
                    write_atomic(&path, |file| Ok(file.write_all(b"1")?)).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 8);
}

#[test]
fn a_folder_is_gone_on_with_by_one_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("data");
    // As a killed process leaves it: not dropped, but without its lock.
    fs::create_dir(root.path().join(".data.partial")).unwrap();
    fs::write(root.path().join(".data.partial/file"), "1").unwrap();
    let staged = StagedFolder::resume(&target).unwrap();
    let message = StagedFolder::resume(&target).unwrap_err().to_string();
    assert!(message.contains("data: another process is at work on it"), "{message}");
    staged.commit().unwrap();
    assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "1");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn a_link_stays_and_leads_to_the_new_folder() {
    let root = tempfile::tempdir().unwrap();
    let (real, link) = (root.path().join("disk/data"), root.path().join("data"));
    fs::create_dir_all(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let written = |staged: StagedFolder, content: &str| {
        fs::write(staged.path().join("file"), content).unwrap();
        staged.commit().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(real.join("file")).unwrap(), content);
        assert_eq!(fs::read_dir(root.path().join("disk")).unwrap().count(), 1);
    };
    written(StagedFolder::new(&link).unwrap(), "1");
    written(StagedFolder::resume(&link.join("")).unwrap(), "2");
    fs::remove_dir_all(&real).unwrap();
    let message = StagedFolder::new(&link).unwrap_err().to_string();
    assert!(message.contains("data: is a link to nothing"), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_mount_point_is_refused() {
    for staged in [StagedFolder::new, StagedFolder::resume] {
        let message = staged(Path::new("/proc")).unwrap_err().to_string();
        assert!(message.contains("/proc: is a mount point"), "{message}");
    }
}

#[test]
fn a_failed_write_leaves_the_old_file() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    write_atomic(&path, |file| Ok(file.write_all(b"old")?)).unwrap();
    let failed = write_atomic(&path, |file| {
        file.write_all(b"ne")?;
        Err(Error::file("x", "went wrong"))
    });
    assert!(failed.is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
}
