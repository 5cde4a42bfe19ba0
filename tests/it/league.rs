//! Embeddings that the software chose, folds that it trains with, and halves that it draws anew.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use fast_slate::baseline::{Asked, Baseline, Fitter};
use fast_slate::dataset::{Split, SyntheticSettings};
use fast_slate::device;
use fast_slate::embedding::{
    Beside, BlendOptions, Form, NeighbourOptions, SessionPart, SvdOptions,
};
use fast_slate::evaluation::{Evaluation, Panel};
use fast_slate::experiment::{Candidate, league};
use fast_slate::facade::Prepared;
use fast_slate::prepared::{EmbeddingSource, HeldOut, Input, Judge, PrepareSettings, prepare};
use fast_slate::retrieval::{Exact, Queries, Retriever as _};
use fast_slate::reward::{RewardKind, SlateReward};
use fast_slate::seed::Seed;
use fast_slate::settings::Preset;
use fast_slate::task::Task;

use crate::common::{assert_says, log_csv, npy, refused, slate, small, small_with, stdout};

#[test]
fn the_winner_is_as_good_as_the_best_and_its_settings_are_the_presets() {
    let folder = tempfile::tempdir().unwrap();
    let input = Input::Synthetic(SyntheticSettings {
        users: 400,
        actions: 300,
        topics: 12,
        ..SyntheticSettings::default()
    });
    let judge = Judge { within: 5, ..Judge::default() };
    let embedding = EmbeddingSource::Auto(judge.clone());
    let settings = PrepareSettings { embedding, ..PrepareSettings::default() };
    let data = folder.path().join("data");
    let prepared = Prepared::create(&input, &settings, &data, false).unwrap();
    let choice = prepared.manifest.choice.clone().unwrap();
    let chosen = choice.settings.unwrap();
    let preset = prepared.preset(Preset::Default);
    assert_eq!(preset.embedding, chosen.embedding);
    assert_eq!(preset.context.encoders, [chosen.encoder]);
    let (found, wanted) = (preset.context.popularity_power, chosen.popularity_power);
    assert_eq!(found.to_bits(), wanted.to_bits());
    // The paper's values do not depend on the data.
    assert_eq!(prepared.preset(Preset::Paper).context, Preset::Paper.settings().context);
    assert!(Task::load(&prepared, &preset).is_ok());

    let (_, table) = league(&prepared.sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
    let winner = table.table.iter().find(|standing| standing.chosen).unwrap();
    let best = &table.table[0];
    assert!(winner.candidate.latent_dim() <= best.candidate.latent_dim());
    assert!(-winner.difference <= winner.difference_se.max(1e-12), "{winner:?}");
    assert!(-winner.difference <= 0.01 * best.reward);
}

#[test]
fn what_was_chosen_is_fitted_to_a_log_that_has_grown() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    log_csv(&at("first.csv"));
    let mut text = fs_err::read_to_string(at("first.csv")).unwrap();
    for (user, item) in (60..80).flat_map(|user| (0..9).map(move |item| (user, item))) {
        text += &format!("u{user},i{},4\n", (user + 3 * item) % 45);
    }
    fs_err::write(at("grown.csv"), text).unwrap();
    let prepare = |log: &str, out: &str, more: &[&str]| {
        let mut command = slate();
        command.arg("prepare").arg(at(log)).args(["--user-column", "who", "--item-column", "what"]);
        command.args(more).arg("--out").arg(at(out)).current_dir(folder.path());
        command
    };
    let like_first = ["--embeddings", "first"];
    let judged = ["--within", "3", "--reward", "dcg", "--slate-size", "3"];
    stdout(&mut prepare("first.csv", "first", &judged));
    stdout(&mut prepare("first.csv", "same", &like_first));
    stdout(&mut prepare("grown.csv", "grown", &like_first));
    let [first, same, grown] =
        ["first", "same", "grown"].map(|name| Prepared::open(&at(name)).unwrap());
    assert_eq!(first.embeddings.load().unwrap(), same.embeddings.load().unwrap());
    let preset = first.preset(Preset::Default);
    assert_eq!((preset.reward.kind, preset.slate_size), (RewardKind::Dcg, 3));
    for again in [&same, &grown] {
        assert_eq!(again.manifest.choice, first.manifest.choice);
        assert_eq!(again.preset(Preset::Default), preset);
    }
    assert_eq!((first.sessions.num_actions, grown.sessions.num_actions), (40, 45));
    assert!(Task::load(&grown, &preset).is_ok());
    // It is as good a model for a third log as the one that looked.
    stdout(&mut prepare("grown.csv", "third", &["--embeddings", "grown"]));
    let third = Prepared::open(&at("third")).unwrap();
    assert_eq!(third.digest(), grown.digest());

    let error =
        refused(&mut prepare("grown.csv", "other", &["--embeddings", "first", "--within", "3"]));
    assert_says(&error, &["--within goes with --embeddings auto"]);
    let error = refused(&mut prepare("grown.csv", "other", &["--embeddings", "."]));
    assert_says(&error, &["no prepared folder"]);
    let ids: Vec<String> = (0..45).map(|item| format!("i{item}")).collect();
    fs_err::write(at("ids.txt"), ids.join("\n")).unwrap();
    npy(&at("beta.npy"), 45, 2, &[0.5; 90]);
    let imported = ["--embeddings", "beta.npy", "--embedding-ids", "ids.txt"];
    stdout(&mut prepare("grown.csv", "imported", &imported));
    let error = refused(&mut prepare("grown.csv", "other", &["--embeddings", "imported"]));
    assert_says(&error, &["imported", "not fitted to interactions", "give their file"]);
    assert!(!at("other").exists());
}

#[test]
fn more_users_judge_the_winners_weights() {
    let folder = tempfile::tempdir().unwrap();
    // More training users in a fold than judge at first where there are so few actions.
    let synthetic = SyntheticSettings {
        users: 35_000,
        actions: 300,
        topics: 6,
        ..SyntheticSettings::default()
    };
    let options = SvdOptions { latent_dim: 20, ..SvdOptions::default() };
    let embedding = EmbeddingSource::Svd { interactions: SessionPart::All, options };
    let settings = PrepareSettings { embedding, ..PrepareSettings::default() };
    let (input, data) = (Input::Synthetic(synthetic), folder.path().join("data"));
    let prepared = Prepared::create(&input, &settings, &data, false).unwrap();
    let judge = Judge { within: 180, ..Judge::default() };
    // Strangers to five fits, and users who hide some of their items from one.
    for held_out in [HeldOut::Users, HeldOut::Items] {
        let (chosen, table) = league(&prepared.sessions, held_out, &judge, Seed(0)).unwrap();
        let settled = table.settled.unwrap();
        assert_eq!(settled.judges, 5 * table.judges);
        assert!(settled.tried >= 4, "{settled:?}");
        let winners: Vec<_> = table.table.iter().filter(|standing| standing.chosen).collect();
        let [winner] = winners.as_slice() else { panic!("{winners:?}") };
        // The judges of the table are among them.
        assert!((settled.reward - winner.reward).abs() < 3.0 * winner.reward_se, "{settled:?}");
        assert!(settled.reward_se < 0.6 * winner.reward_se, "{settled:?}");
        let (settings, (_, folds)) = (chosen.choice.settings.unwrap(), chosen.folds.unwrap());
        let Candidate { form, popularity_power, .. } = winner.candidate;
        assert_eq!((settings.embedding, settings.popularity_power), (form, popularity_power));
        let length = winner.candidate.latent_dim();
        assert!(folds.iter().all(|fold| fold.v.cols() == length) && folds.len() == 5);
    }
}

#[test]
fn one_fold_of_a_large_log_judges_and_teaches() {
    let folder = tempfile::tempdir().unwrap();
    let synthetic = SyntheticSettings {
        users: 47_000,
        actions: 150,
        topics: 6,
        mean_interactions: 12,
        min_interactions: 8,
        ..SyntheticSettings::default()
    };
    let embedding = EmbeddingSource::Auto(Judge { within: 60, ..Judge::default() });
    let settings = PrepareSettings { embedding, ..PrepareSettings::default() };
    let (input, data) = (Input::Synthetic(synthetic), folder.path().join("data"));
    let report = OnceCell::new();
    let choose = |sessions: &_, held_out: HeldOut<'_>, judge: &_, seed| {
        let (chosen, found) = league(sessions, held_out, judge, seed)?;
        report.set(found).unwrap();
        Ok(chosen)
    };
    let (prepared, _) = prepare(&input, &settings, &choose, &data, false).unwrap();
    let report = report.get().unwrap();
    let settled = report.settled.as_ref().unwrap();

    let settings = prepared.preset(Preset::Default);
    let folds = prepared.folds(settings.context.folds);
    let taught_by = prepared.taught_by(&settings);
    assert_eq!((folds.count(), &taught_by), (1, &folds.within(0)));
    // There are so few actions that all of the fold are asked in the end.
    assert!(report.judges < taught_by.len() && settled.judges == taught_by.len());
    decide_by_themselves(&prepared);
    let task = Task::load(&prepared, &settings).unwrap();
    assert_eq!(task.training_groups(), [taught_by]);
    let kept = fs_err::read_dir(data.join("folds")).unwrap();
    assert_eq!(kept.count(), 1, "the fit that judged, and no other");

    let drawn = task.redrawn(Split::Train, Seed(3), 1).unwrap();
    let stays = |user: &u32| drawn.sessions.observed.of(*user) == task.sessions.observed.of(*user);
    assert!(folds.without(0).iter().all(stays) && !folds.within(0).iter().all(stays));
}

#[test]
fn a_fold_decides_by_itself_in_the_space_of_all() {
    let folder = tempfile::tempdir().unwrap();
    decide_by_themselves(&small(&folder.path().join("svd")));

    let options = BlendOptions {
        latent_dim: 16,
        svd: SvdOptions { latent_dim: 16, ..SvdOptions::default() },
        form: Form { ridge: 0.5, ..Form::default() },
        als_dim: 8,
        regularization: 10.0,
        confidence: 10.0,
        share: 0.5,
    };
    let embedding = EmbeddingSource::Blend { interactions: SessionPart::All, options };
    let data = folder.path().join("blend");
    small_with(&data, &PrepareSettings { embedding, ..PrepareSettings::default() });
    let prepared = Prepared::open(&data).unwrap();
    assert_eq!(prepared.preset(Preset::Default).embedding, Form::default());
    decide_by_themselves(&prepared);

    let options = NeighbourOptions {
        dims: 24,
        count: 5,
        weight: 1.0,
        ridge: 3.0,
        popularity_power: 0.25,
        form: Form { popularity: 0.25, ..Form::default() },
        beside: Beside::Blend(options),
    };
    let embedding = EmbeddingSource::Neighbours { interactions: SessionPart::All, options };
    let data = folder.path().join("neighbours");
    small_with(&data, &PrepareSettings { embedding, ..PrepareSettings::default() });
    let prepared = Prepared::open(&data).unwrap();
    assert_eq!(prepared.embeddings.latent_dim(), 24 + 16);
    assert_eq!(prepared.preset(Preset::Default).tower.fixed, 24);
    assert_eq!(prepared.preset(Preset::Paper).tower.fixed, 0);
    decide_by_themselves(&prepared);
    // What was fitted once is fitted again from what the folder says of it.
    let again = folder.path().join("again");
    let embedding = EmbeddingSource::again(&data).unwrap();
    small_with(&again, &PrepareSettings { embedding, ..PrepareSettings::default() });
    let again = Prepared::open(&again).unwrap();
    assert_eq!(again.embeddings.load().unwrap(), prepared.embeddings.load().unwrap());
}

fn decide_by_themselves(prepared: &Prepared) {
    let settings = prepared.preset(Preset::Default);
    let task = Task::load(prepared, &settings).unwrap();
    let device = device::choose(None).unwrap().device;
    let start = task.initial_model(&settings, &device).unwrap();
    let folds = prepared.folds(settings.context.folds);
    let embeddings = prepared.fold_embeddings(&folds).unwrap();
    let sessions = &prepared.sessions;
    let mut changed = 0;
    for (fold, embeddings) in (0..folds.count()).zip(&embeddings) {
        let users = folds.within(fold);
        let decided = task.decide(&start, &users, task.exact.as_ref()).unwrap();
        // The fold's own vectors, as they were fitted.
        let popularity = sessions.popularity(&folds.without(fold));
        let vectors = embeddings.vectors(&settings.embedding, &popularity).unwrap();
        let gamma = settings.context.popularity_power;
        let encoder = fast_slate::encoder::Mean::inverse_popularity(
            vectors.inputs.clone(),
            &popularity,
            gamma,
        );
        let known = |user| fast_slate::encoder::Known {
            actions: sessions.observed.of(user),
            ..Default::default()
        };
        let latent = fast_slate::encoder::encode_all(&encoder, &users, known);
        let excluded: Vec<&[u32]> = users.iter().map(|user| sessions.observed.of(*user)).collect();
        let queries =
            Queries { latent: &latent, slate_size: 5, excluded: Some(excluded.as_slice()) };
        let own = Exact::new(vectors.actions).search(queries).unwrap();
        // But for actions of nearly one score, which a rotation in f32 may exchange.
        let same = (0..users.len()).filter(|&at| decided.slate(at) == own.slate(at)).count();
        assert!(same as f64 >= 0.97 * users.len() as f64, "{same} of {}", users.len());
        let all = Task::to_decide(prepared, &settings).unwrap();
        let of_all = all.decide(&start, &users, all.exact.as_ref()).unwrap();
        changed += (0..users.len()).filter(|&at| decided.slate(at) != of_all.slate(at)).count();
    }
    assert!(changed > 0, "the fits without a fold are others");
    // Nobody else is touched.
    let held_out = sessions.contexts(Split::Validation);
    let all = Task::to_decide(prepared, &settings).unwrap();
    assert_eq!(
        task.decide(&start, &held_out, task.exact.as_ref()).unwrap(),
        all.decide(&start, &held_out, all.exact.as_ref()).unwrap()
    );
}

#[test]
fn a_draw_hides_other_items_of_the_users_of_a_split_and_as_many() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = small(&folder.path().join("data"));
    let task = Task::load(&prepared, &prepared.preset(Preset::Default)).unwrap();
    for split in [Split::Train, Split::Validation] {
        other_items_are_hidden(&task, split);
    }
}

fn other_items_are_hidden(task: &Task, split: Split) {
    let drawn = |draw| task.redrawn(split, Seed(3), draw).unwrap();
    let (one, again, two) = (drawn(1), drawn(1), drawn(2));
    assert_eq!(one.sessions, again.sessions);
    assert_ne!(one.sessions, two.sessions);
    let (before, after) = (&task.sessions, &one.sessions);
    let mut moved = 0;
    for context in before.observed.contexts() {
        let all = |sessions: &fast_slate::dataset::Sessions| {
            let mut all = [sessions.observed.of(context), sessions.hidden.of(context)].concat();
            all.sort_unstable();
            all
        };
        assert_eq!(all(before), all(after));
        assert_eq!(before.observed.of(context).len(), after.observed.of(context).len());
        let row = context as usize;
        if before.split[row] != split {
            assert_eq!(before.observed.of(context), after.observed.of(context));
            assert_eq!(task.contexts.row(row), one.contexts.row(row));
        } else if before.observed.of(context) != after.observed.of(context) {
            assert_ne!(task.contexts.row(row), one.contexts.row(row));
            moved += 1;
        }
    }
    assert!(moved > 10, "{moved}");
}

/// A reward that knows the halves by itself.
#[derive(Debug)]
struct Fixed;

impl SlateReward for Fixed {
    fn reward(&self, context: u32, _slate: &[u32]) -> f32 {
        context as f32
    }
}

#[test]
fn few_users_judge_by_several_halves_of_their_items() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = small(&folder.path().join("data"));
    let task = Task::load(&prepared, &prepared.preset(Preset::Default)).unwrap();
    let popularity = Baseline::named("popularity").unwrap().unwrap();
    let fitted = Fitter::new(&task.sessions, Seed(0)).fit(popularity).unwrap();
    let of = |task: &Task, contexts: &[u32]| {
        Evaluation::by(task, contexts, |block| fitted.slates(Asked::of(task, block)))
    };
    let validation = task.sessions.contexts(Split::Validation);
    let panel = Panel::new(&task, Split::Validation, validation.clone());
    let once = panel.evaluate(of).unwrap();
    assert_eq!(once, of(&task, &validation).unwrap());

    let thrice = panel.clone().with_halves(3).evaluate(of).unwrap();
    let others = [1, 2].map(|draw| {
        let drawn = task.redrawn(Split::Validation, Seed(0), draw).unwrap();
        of(&drawn, &validation).unwrap().mean()
    });
    let mean = (once.mean() + others[0] + others[1]) / 3.0;
    assert!((thrice.mean() - mean).abs() < 1e-6, "{} {mean}", thrice.mean());
    assert!(thrice.standard_error() < once.standard_error());
    // Nobody is asked twice about the same halves.
    let further = panel.further(3).unwrap();
    assert_eq!((panel.halves(), further.halves()), (1, 2));
    let mean = f64::midpoint(others[0], others[1]);
    assert!((further.evaluate(of).unwrap().mean() - mean).abs() < 1e-6);
    assert!(panel.clone().with_halves(3).further(3).is_none());
    // Those whose rewards know the halves are asked once.
    let task = task.clone().with_reward(Arc::new(Fixed));
    assert_eq!(Panel::new(&task, Split::Validation, validation).with_halves(3).halves(), 1);
}

/// A log of 600 users who turn from one topic of 25 items to another, eight items at a time: columns
/// `who`, `what`, `day`.
fn wanderers(path: &Path) {
    let mut text = String::from("who,what,day\n");
    let mut state = 7_u32;
    let mut below = |end: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % end
    };
    for user in 0..600 {
        let mut day = 0;
        for _ in 0..4 {
            let (topic, first, stride) = (below(12), below(25), 1 + below(24));
            for at in 0..8 {
                let item = 25 * topic + (first + at * stride) % 25;
                day += 1;
                text += &format!("u{user},i{item},{day}\n");
            }
        }
    }
    fs_err::write(path, text).unwrap();
}

#[test]
fn recent_items_say_more_where_the_latest_are_hidden() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.csv");
    wanderers(&log);
    let recency = |name: &str, split: &[&str]| {
        let data = folder.path().join(name);
        let mut command = slate();
        command.arg("prepare").arg(&log).args(["--user-column", "who", "--item-column", "what"]);
        command.args(["--time-column", "day", "--within", "5"]).args(split);
        stdout(command.arg("--out").arg(&data));
        let prepared = Prepared::open(&data).unwrap();
        let chosen = prepared.manifest.choice.clone().unwrap().settings.unwrap();
        let preset = prepared.preset(Preset::Default).context.recency;
        assert_eq!(preset.to_bits(), chosen.recency.to_bits());
        preset
    };
    assert!(recency("temporal", &["--split", "temporal"]) > 0.0);
    // None of a user's items that all have one time is recent.
    let text = fs_err::read_to_string(&log).unwrap();
    let rows = text.lines().skip(1).map(|row| format!("{}7\n", &row[..=row.rfind(',').unwrap()]));
    let at_once = folder.path().join("at-once.csv");
    fs_err::write(&at_once, format!("who,what,day\n{}", rows.collect::<Vec<_>>().concat()))
        .unwrap();
    let mut command = slate();
    command.arg("prepare").arg(&at_once).args(["--user-column", "who", "--item-column", "what"]);
    command.args(["--time-column", "day", "--within", "3", "--split", "temporal"]);
    stdout(command.arg("--out").arg(folder.path().join("at-once")));
    let prepared = Prepared::open(&folder.path().join("at-once")).unwrap();
    assert!(prepared.preset(Preset::Default).context.recency == 0.0);
    let mut again = slate();
    again.arg("prepare").arg(&log).args(["--user-column", "who", "--item-column", "what"]);
    again.arg("--embeddings").arg(folder.path().join("temporal"));
    let error = refused(again.arg("--out").arg(folder.path().join("again")));
    assert_says(&error, &["`embeddings`", "no times", "--time-column"]);
    // The latest items of a user are hidden, and no others might be.
    let prepared = Prepared::open(&folder.path().join("temporal")).unwrap();
    let task = Task::load(&prepared, &prepared.preset(Preset::Default)).unwrap();
    assert!(task.redrawn(Split::Validation, Seed(0), 1).is_none());
    assert!(recency("random", &[]) == 0.0);
}
