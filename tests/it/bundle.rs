//! A bundle answers as its run does, alone, when everything that trained it is gone; damage is refused
//! by the file's name; a file of users is answered in parts that make the whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fast_slate::Error;
use fast_slate::bundle::{
    Answer, Batch, Bundle, Filter, Options, Part, Recommender, Request, VectorScalar, Who,
    shard_folders,
};
use fast_slate::dataset::{ItemSource, ItemTable, SyntheticSettings};
use fast_slate::device;
use fast_slate::embedding::Import;
use fast_slate::facade::{Policy, Which};
use fast_slate::interrupt::interruptible;
use fast_slate::matrix::Matrix;
use fast_slate::prepared::{EmbeddingSource, Input, PrepareSettings, Prepared};
use fast_slate::retrieval::Search;
use fast_slate::seed::{Purpose, Seed};
use fast_slate::settings::{Preset, SettingsBuilder};
use fast_slate::tower::{Activation, TowerForm};
use polars::prelude::*;
use safetensors::{Dtype, tensor::TensorView};
use tempfile::TempDir;

use crate::common::{assert_says, names, refused, slate, small, stdout, svd, table};

/// A short run on a few synthetic sessions.
struct Place {
    folder: TempDir,
    prepared: Prepared,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let prepared = small(&folder.path().join("data"));
        Self { folder, prepared }
    }

    /// With imported vectors: those that are retrieved, and others of which contexts are made.
    fn asymmetric() -> Self {
        let Self { folder, prepared } = Self::new();
        let rows = prepared.sessions.num_actions;
        let numbers = |seed: usize| -> Vec<u8> {
            let number = |at: usize| ((at * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0;
            (0..rows * 8).flat_map(|at| number(at).to_le_bytes()).collect()
        };
        let (beta, inputs) = (numbers(1), numbers(2));
        let view = |bytes| TensorView::new(Dtype::F32, vec![rows, 8], bytes).unwrap();
        let tensors = [("beta", view(&beta)), ("inputs", view(&inputs))];
        let file = folder.path().join("vectors.safetensors");
        fs_err::write(&file, safetensors::serialize(tensors, None).unwrap()).unwrap();
        let embedding = EmbeddingSource::Import(Import::new(file));
        let settings = PrepareSettings { embedding, ..svd(8) };
        let synthetic = SyntheticSettings {
            users: 400,
            actions: 300,
            topics: 12,
            ..SyntheticSettings::default()
        };
        let (input, data) = (Input::Synthetic(synthetic), folder.path().join("data"));
        let prepared = Prepared::create(&input, &settings, &data, true).unwrap();
        Self { folder, prepared }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn train(&self, sets: &[&str]) -> Policy {
        let mut builder = SettingsBuilder::new(&self.prepared.preset(Preset::Default)).unwrap();
        for set in ["budget.amount=8", "evaluation.count=1", "optimizer.learning_rate=0.05"] {
            builder = builder.assignment(set).unwrap();
        }
        for set in sets {
            builder = builder.assignment(set).unwrap();
        }
        let run = self.path("run");
        self.prepared.train(&builder.build().unwrap(), &run).unwrap();
        Policy::open(&run, Which::Last, Some("flex")).unwrap()
    }

    /// The bundle of a short default run, with histories and an index.
    fn bundle(&self) -> Recommender {
        let bundle = indexed(&self.train(&[]));
        bundle.write(&self.path("bundle"), VectorScalar::F32, true).unwrap();
        opened(&self.path("bundle")).unwrap()
    }
}

/// A bundle with histories and an index.
fn indexed(policy: &Policy) -> Bundle {
    let mut bundle = policy.bundle(true).unwrap();
    bundle.index = Some(policy.index(5, 0.95).unwrap().0);
    bundle
}

fn opened(folder: &Path) -> Result<Recommender, Error> {
    Recommender::open(folder, &device::choose(Some("flex")).unwrap().device)
}

fn user(id: &str) -> Request {
    Who::User { id: id.into(), newer: Vec::new() }.into()
}

fn items(ids: &[&str]) -> Request {
    Who::Items(ids.iter().map(ToString::to_string).collect()).into()
}

fn exact() -> Options {
    Options { search: Some(Search::Exact), ..Options::default() }
}

fn one(recommender: &Recommender, request: Request, options: &Options) -> Answer {
    recommender.recommend(&[request], options).unwrap().swap_remove(0)
}

fn ids(answer: &Answer) -> Vec<&str> {
    answer.slate.iter().map(|item| item.item_id.as_str()).collect()
}

/// Ids, and the bits of scores.
fn bits(answers: &[Answer]) -> Vec<(String, u32)> {
    let items = answers.iter().flat_map(|answer| &answer.slate);
    items.map(|item| (item.item_id.clone(), item.score.to_bits())).collect()
}

/// Exports `policy` of `place`, deletes what trained it, and compares every answer.
fn answers_alone(place: &Place, policy: &Policy) {
    let task = &policy.task;
    let catalogue = fast_slate::dataset::Catalogue::read(place.prepared.folder()).unwrap();
    let contexts: Vec<u32> = task.sessions.observed.contexts().collect();
    let retriever = task.retriever(&policy.model, Search::Exact).unwrap();
    let decided = task.decide(&policy.model, &contexts, retriever.as_ref()).unwrap();
    let decided: Vec<(String, u32)> = (0..contexts.len())
        .flat_map(|at| decided.slate(at).iter().zip(decided.scores(at)))
        .map(|(&action, score)| (catalogue.items.ids.id(action).to_owned(), score.to_bits()))
        .collect();
    let observed = |context: u32| -> Vec<String> {
        let actions = task.sessions.observed.of(context).iter();
        actions.map(|&action| catalogue.items.ids.id(action).to_owned()).collect()
    };
    let users: Vec<Request> = catalogue.users.iter().map(user).collect();
    let of_users = policy.recommender().unwrap().recommend(&users, &Options::default()).unwrap();

    let out = place.path("bundle");
    policy.bundle(true).unwrap().write(&out, VectorScalar::F32, true).unwrap();
    fs_err::remove_dir_all(place.path("run")).unwrap();
    let hidden = place.path("elsewhere");
    fs_err::rename(place.path("data"), &hidden).unwrap();
    let alone = opened(&out).unwrap();
    let all = |request: &dyn Fn(u32) -> Request| {
        let requests: Vec<Request> = contexts.iter().map(|&context| request(context)).collect();
        alone.recommend(&requests, &Options::default()).unwrap()
    };
    assert_eq!(bits(&all(&|context| Who::Items(observed(context)).into())), decided);
    let raw = all(&|context| Request {
        who: Who::Context(task.contexts.row(context as usize).to_vec()),
        exclude: observed(context),
    });
    assert_eq!(bits(&raw), decided);
    let answers = alone.recommend(&users, &Options::default()).unwrap();
    assert_eq!(answers, of_users);
    assert_eq!(bits(&answers), bits(&of_users));
    // Whoever else asks.
    for at in [0, 7, 33] {
        assert_eq!(one(&alone, users[at].clone(), &Options::default()), answers[at]);
    }
    fs_err::rename(hidden, place.path("data")).unwrap();
}

#[test]
fn a_bundle_answers_as_its_run_without_what_trained_it() {
    let place = Place::new();
    for sets in [
        &[][..],
        &["tower.kind=sigmoid-mlp"],
        &["tower.kind=residual-mlp", "tower.hidden=[24]", "tower.activation=gelu"],
        &["context.encoders=[\"fold-in\", \"mean\"]"],
        &["context.encoders=[\"weighted-mean\"]", "context.popularity_power=0.37"],
        &["method.kind=pl-rank", "method.learn_actions=true"],
        &[
            "method.kind=pl-rank",
            "method.learn_actions=true",
            "context.encoders=[\"fold-in\"]",
            "slate_size=3",
        ],
    ] {
        answers_alone(&place, &place.train(sets));
    }
}

#[test]
fn a_query_does_not_depend_on_its_neighbours() {
    let normals = |at: u64, rows: usize, cols: usize| {
        let mut matrix = Matrix::zeros(rows, cols);
        Seed(4).stream(Purpose::Synthetic, 0, at).fill_normals(matrix.as_mut_slice());
        matrix
    };
    let contexts = normals(0, 333, 515);
    let [wide, narrow, straight] = [normals(1, 515, 97), normals(2, 97, 300), normals(3, 515, 300)];
    let (two_means, balanced) = (normals(4, 333, 815), normals(5, 515, 97));
    let residual = |balance| {
        let activation = Activation::Gelu;
        TowerForm::ResidualMlp { activation, scale: 1.3, balance }
    };
    for device in ["ndarray", "flex"].map(|name| device::choose(Some(name)).unwrap().device) {
        for (form, layers) in [
            (TowerForm::Linear, vec![straight.clone()]),
            (TowerForm::SigmoidMlp, vec![wide.clone(), narrow.clone()]),
            (residual(None), vec![wide.clone(), narrow.clone()]),
            (residual(Some(0.7)), vec![balanced.clone(), narrow.clone()]),
        ] {
            let contexts = if form == residual(Some(0.7)) { &two_means } else { &contexts };
            let shape = [contexts.cols(), 300];
            let tower = form.tower(&layers, shape, &device).unwrap();
            assert_eq!((tower.form().unwrap(), tower.layers().unwrap()), (form, layers));
            let together = tower.latent(contexts).unwrap();
            for size in [1, 2, 16, 50, 200] {
                for first in (0..333).step_by(size.max(31)) {
                    let rows: Vec<u32> = (first as u32..333.min(first + size) as u32).collect();
                    let apart = tower.latent(&contexts.select(&rows)).unwrap();
                    assert_eq!(apart, together.select(&rows), "{form:?}, {size} from {first}");
                }
            }
            let short = form.tower(&tower.layers().unwrap()[..1], [shape[0], 301], &device);
            assert_says(&short.unwrap_err().to_string(), &["layers of the tower"]);
        }
    }
}

#[test]
fn imported_vectors_of_two_kinds_are_kept_apart() {
    let place = Place::asymmetric();
    for sets in [&[][..], &["context.encoders=[\"mean\", \"fold-in\"]"]] {
        let policy = place.train(sets);
        assert_ne!(policy.task.inputs.as_slice(), policy.task.actions.beta().as_slice());
        answers_alone(&place, &policy);
    }
}

#[test]
fn damage_is_refused_by_the_files_name() {
    let place = Place::new();
    place.bundle();
    let (bundle, other) = (place.path("bundle"), place.path("other"));
    // Another bundle of the same shapes.
    fs_err::remove_dir_all(place.path("run")).unwrap();
    let mut trained = indexed(&place.train(&["seed=5"]));
    trained.trained.step += 1;
    trained.write(&other, VectorScalar::F16, false).unwrap();

    let files = names(&bundle);
    assert_eq!(
        files,
        [
            "bundle.toml",
            "histories.parquet",
            "index.usearch",
            "items.parquet",
            "model.safetensors",
            "users.parquet",
            "vectors.safetensors"
        ]
    );
    for name in &files {
        let path = bundle.join(name);
        let whole = fs_err::read(&path).unwrap();
        let refused = |what: &str| {
            let error = opened(&bundle).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1);
            error.contains(name) || panic!("{name} {what}: {error}")
        };
        for at in [0, whole.len() / 3, whole.len() / 2, whole.len() - 2] {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs_err::write(&path, &flipped).unwrap();
            refused("flipped");
            fs_err::write(&path, &whole[..at]).unwrap();
            refused("truncated");
        }
        fs_err::remove_file(&path).unwrap();
        let error = opened(&bundle).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        let theirs = fs_err::read(other.join(name)).unwrap();
        fs_err::write(&path, &theirs).unwrap();
        if name == "bundle.toml" {
            // It belongs to other files.
            assert_says(&opened(&bundle).unwrap_err().to_string(), &["bundle", "export"]);
        } else if theirs != whole {
            refused("swapped");
        }
        fs_err::write(&path, &whole).unwrap();
    }
    let manifest = bundle.join("bundle.toml");
    let text = fs_err::read_to_string(&manifest).unwrap();
    fs_err::write(&manifest, text.replace("format = 2", "format = 3")).unwrap();
    let error = opened(&bundle).unwrap_err().to_string();
    assert_says(
        &error,
        &["bundle.toml: is of format 3, which a newer fast-slate wrote", "up to 2"],
    );
    fs_err::write(&manifest, text).unwrap();
    opened(&bundle).unwrap();
}

#[test]
fn a_mapped_bundle_answers_alike_and_its_damage_is_found() {
    let place = Place::new();
    let device = device::choose(Some("flex")).unwrap().device;
    for scalar in [VectorScalar::F16, VectorScalar::F32] {
        let (bundle, path) = (place.bundle(), place.path("bundle"));
        bundle.bundle().write(&path, scalar, true).unwrap();
        let requests: Vec<Request> =
            (1..=50).map(|id| user(&id.to_string())).chain([items(&["3"])]).collect();
        let (mapped, unchecked) = Recommender::map(&path, &device).unwrap();
        let read = opened(&path).unwrap();
        for options in [exact(), Options::default()] {
            let of =
                |recommender: &Recommender| recommender.recommend(&requests, &options).unwrap();
            assert_eq!(bits(&of(&mapped)), bits(&of(&read)), "{scalar:?}");
        }
        unchecked.check().unwrap();
        drop(mapped);
        for name in ["vectors.safetensors", "index.usearch"] {
            let file = path.join(name);
            let whole = fs_err::read(&file).unwrap();
            let mut flipped = whole.clone();
            // A digit of a number.
            flipped[whole.len() - 4] ^= 1;
            fs_err::write(&file, &flipped).unwrap();
            let (_, unchecked) = Recommender::map(&path, &device).unwrap();
            assert_says(&unchecked.check().unwrap_err().to_string(), &[name, "export the bundle"]);
            fs_err::write(&file, &whole[..whole.len() - 1]).unwrap();
            let error = Recommender::map(&path, &device).unwrap_err().to_string();
            assert_says(&error, &[name, "were written"]);
            fs_err::write(&file, &whole).unwrap();
        }
        // What is read at once is checked at once.
        let items = path.join("items.parquet");
        let mut flipped = fs_err::read(&items).unwrap();
        flipped[10] ^= 1;
        fs_err::write(&items, flipped).unwrap();
        let error = Recommender::map(&path, &device).unwrap_err().to_string();
        assert_says(&error, &["items.parquet", "is not what was written"]);
    }
}

#[test]
fn requests_are_answered_or_refused_in_one_line() {
    let place = Place::new();
    let recommender = place.bundle();
    let bundle = recommender.bundle();
    let (count, dim) = (bundle.actions.num_actions(), recommender.context_dim());
    let first = bundle.items.ids.id(0).to_owned();
    let of = |k: usize| Options { slate_size: Some(k), ..exact() };

    // Nobody is known without items, and the index answers as the search of all does.
    let cold = one(&recommender, items(&["no such item"]), &exact());
    assert!(cold.cold && !cold.short);
    assert_eq!(cold.ignored, ["no such item"]);
    let stranger = one(&recommender, items(&[]), &exact());
    assert_eq!((ids(&stranger), stranger.ignored.len()), (ids(&cold), 0));
    assert!(!one(&recommender, items(&[&first, "x"]), &exact()).cold);
    assert_eq!(one(&recommender, user("7"), &Options::default()).slate.len(), 5);

    // What was seen is shown if it may be, and what is newer counts.
    let known = bundle.users.as_ref().unwrap();
    let seen = known.known(known.ids.find("7").unwrap()).actions.to_vec();
    let all = one(&recommender, user("7"), &of(count - seen.len()));
    assert!(!all.short);
    assert!(seen.iter().all(|&action| !ids(&all).contains(&bundle.items.ids.id(action))));
    let whole = Options { exclude_seen: false, ..of(count) };
    assert_eq!(one(&recommender, user("7"), &whole).slate.len(), count);
    let newer = ids(&all)[0].to_owned();
    let who = Who::User { id: "7".into(), newer: vec![newer.clone()] };
    let later = one(&recommender, who.into(), &exact());
    assert!(!ids(&later).contains(&newer.as_str()));

    // Lists: of everything that may be shown, what the list leaves, in the same order.
    let ranked: Vec<String> = ids(&all).into_iter().map(str::to_owned).collect();
    let filter = |allow: Option<&[String]>, deny: &[String]| Options {
        filter: Filter::new(bundle, allow, deny).unwrap(),
        ..exact()
    };
    let denied = one(&recommender, user("7"), &filter(None, &ranked[..2]));
    assert_eq!(ids(&denied), ranked[2..7]);
    let many: Vec<String> = ranked.iter().step_by(2).cloned().collect();
    let allowed = one(&recommender, user("7"), &filter(Some(&many), &[]));
    assert_eq!(ids(&allowed), many[..5]);
    let few = [ranked[90].clone(), ranked[4].clone()];
    let short = one(&recommender, user("7"), &filter(Some(&few), &[]));
    assert_eq!((ids(&short), short.short), (vec![few[1].as_str(), &few[0]], true));
    let mut request = user("7");
    request.exclude = vec![few[1].clone(), "x".into()];
    let left = one(&recommender, request, &filter(Some(&few), &[]));
    assert_eq!((ids(&left), &left.ignored), (vec![few[0].as_str()], &vec!["x".to_owned()]));
    let short = one(&recommender, user("7"), &of(count - seen.len() + 1));
    assert!(short.short && short.slate.len() == count - seen.len());
    let error = Filter::new(bundle, Some(&["x".into()]), &[]).unwrap_err().to_string();
    assert_says(&error, &["allow", "no item of this list"]);

    let refused = |request: Request, options: &Options, said: &[&str]| {
        let error = recommender.recommend(&[items(&[]), request], options).unwrap_err();
        assert_eq!(error.to_string().lines().count(), 1);
        assert_says(&error.to_string(), said);
    };
    refused(user("nobody"), &exact(), &["users.parquet: no user `nobody`"]);
    refused(user("7"), &of(0), &["a slate of 0 actions"]);
    refused(user("7"), &of(count + 1), &["only", "can be chosen", "--slate-size"]);
    let context = |value: f32, dim: usize| Who::Context(vec![value; dim]).into();
    refused(context(f32::NAN, dim), &exact(), &["context: row 2, column 1 is NaN"]);
    refused(context(f32::INFINITY, dim), &exact(), &["context: row 2, column 1 is inf"]);
    refused(context(0.0, dim + 1), &exact(), &["context 2: expected shape", &dim.to_string()]);

    // Without histories nobody is known, without an index nothing is walked.
    let plain: Bundle = Bundle { users: None, index: None, ..bundle.clone() };
    plain.write(&place.path("plain"), VectorScalar::F16, false).unwrap();
    let plain = opened(&place.path("plain")).unwrap();
    let error = plain.recommend(&[user("7")], &exact()).unwrap_err().to_string();
    assert_says(&error, &["no histories", "--histories"]);
    let index = Options { search: Some(Search::Hnsw), ..Options::default() };
    let error = plain.recommend(&[items(&[])], &index).unwrap_err().to_string();
    assert_says(&error, &["no index", "--index"]);
    // Halves are off by rounding.
    let half = one(&plain, items(&[&first]), &exact());
    let whole = one(&recommender, items(&[&first]), &exact());
    for (half, whole) in half.slate.iter().zip(&whole.slate) {
        assert!((half.score - whole.score).abs() < 2e-3 * whole.score.abs(), "{half:?} {whole:?}");
    }
}

/// A table of the items `ids`: every tenth is without a group, the others are in twelve.
fn grouped(ids: impl Iterator<Item = String>) -> String {
    let group = |id: &str| match id.parse::<u32>().unwrap() {
        id if id % 10 == 0 => String::new(),
        id => format!("Topic {}|of 12", id % 12),
    };
    let rows = ids.map(|id| format!("{id},Item {id},{}\n", group(&id)));
    "item_id,title,group\n".to_owned() + &rows.collect::<String>()
}

/// The items of `ranked` from the top, without those whose group has been there `most` times; and
/// whether there are fewer than `k`.
fn greedy(ranked: &Answer, k: usize, most: usize) -> (Vec<(String, u32)>, bool) {
    let (mut kept, mut groups) = (Vec::new(), Vec::new());
    for item in &ranked.slate {
        let shown = groups.iter().filter(|group| **group == item.group).count();
        if kept.len() < k && (item.group.is_none() || shown < most) {
            kept.push((item.item_id.clone(), item.score.to_bits()));
            groups.push(item.group.clone());
        }
    }
    let short = kept.len() < k;
    (kept, short)
}

#[test]
fn a_slate_with_few_items_of_a_group_is_the_greedy_walk_down_the_ranking() {
    let place = Place::new();
    let recommender = place.bundle();
    let error = |recommender: &Recommender, most: usize| {
        let options = Options { max_per_group: Some(most), ..Options::default() };
        recommender.recommend(&[items(&[])], &options).unwrap_err().to_string()
    };
    assert_says(&error(&recommender, 2), &["max_per_group", "no groups", "--titles"]);

    let mut bundle = recommender.bundle().clone();
    let path = place.path("items.csv");
    let ids = bundle.items.ids.iter().map(str::to_owned);
    fs_err::write(&path, grouped(ids)).unwrap();
    let item_column = "item_id".into();
    let source = ItemSource { path, item_column, title_column: None, group_column: None };
    assert_eq!(ItemTable::read(source).unwrap().label(&mut bundle.items).unwrap(), 0);
    bundle.write(&place.path("grouped"), VectorScalar::F32, false).unwrap();
    let recommender = opened(&place.path("grouped")).unwrap();
    assert_says(&error(&recommender, 0), &["max_per_group", "expected 1 or more"]);

    let bundle = recommender.bundle();
    let count = bundle.actions.num_actions();
    let id = |action: u32| bundle.items.ids.id(action).to_owned();
    let few = [id(3), id(77)];
    let many: Vec<String> = (0..count as u32).step_by(3).map(id).collect();
    let mut without = user("7");
    without.exclude = (0..40).map(id).collect();
    let requests = [user("7"), items(&[]), without, items(&[&id(5), &id(9)])];
    for (allow, deny) in
        [(None, &[][..]), (None, &many[..]), (Some(&many[..]), &[]), (Some(&few[..]), &[])]
    {
        for explore in [None, Some(Seed(3))] {
            let filter = Filter::new(bundle, allow, deny).unwrap();
            let options = |k: usize, search: Search, max_per_group: Option<usize>| Options {
                slate_size: Some(k),
                search: Some(search),
                filter: filter.clone(),
                explore,
                max_per_group,
                ..Options::default()
            };
            let everything = options(count, Search::Exact, None);
            let ranked = recommender.recommend(&requests, &everything).unwrap();
            for (k, most) in [(1, 1), (5, 1), (5, 2), (12, 1), (40, 2), (90, 4), (count - 1, 9)] {
                for search in [Search::Exact, Search::Hnsw] {
                    let limited = options(k, search, Some(most));
                    let answers = recommender.recommend(&requests, &limited).unwrap();
                    for (answer, ranked) in answers.iter().zip(&ranked) {
                        let found = (bits(std::slice::from_ref(answer)), answer.short);
                        assert_eq!(found, greedy(ranked, k, most), "{k} {most} {search:?}");
                    }
                }
            }
            // A limit that nothing meets changes nothing.
            let [free, loose] = [None, Some(count)].map(|most| {
                recommender.recommend(&requests, &options(9, Search::Exact, most)).unwrap()
            });
            assert_eq!(free, loose);
        }
    }
}

#[test]
fn a_search_for_which_nobody_waits_ends_early() {
    let place = Place::new();
    let recommender = place.bundle();
    let ask = || recommender.recommend(&[items(&[])], &Options::default());
    assert!(matches!(interruptible(|| true, ask), Err(Error::Interrupted)));
    assert_eq!(interruptible(|| false, ask).unwrap(), ask().unwrap());
}

#[test]
fn titles_and_groups_are_exported_from_a_table_and_asked_for_on_the_command_line() {
    let place = Place::new();
    let policy = place.train(&[]);
    let at = |name: &str| place.path(name).display().to_string();
    let (run, bundle, titles) = (at("run"), at("bundle"), at("items.csv"));
    let recommender = policy.recommender().unwrap();
    let ids = recommender.bundle().items.ids.iter().map(str::to_owned);
    fs_err::write(&titles, grouped(ids.chain(["1000".to_owned()]))).unwrap();
    let export = |args: &[&str]| {
        let mut command = slate();
        command.args(["export", &run, "--out", &bundle, "--histories", "--force"]).args(args);
        command
    };
    let said = stdout(&mut export(&["--titles", &titles]));
    assert_says(&said, &["1 items of --titles are not in the catalogue"]);
    let error = refused(&mut export(&["--titles", &titles, "--group-column", "kind"]));
    assert_says(&error, &["items.csv: no column `kind`; the columns are item_id, title, group"]);
    export(&["--group-column", "group"]).assert().code(2);

    let shown = |from: &str, args: &[&str]| -> serde_json::Value {
        let mut command = slate();
        let said = stdout(command.args(["recommend", from, "--json", "-k", "9"]).args(args));
        serde_json::from_str(&said).unwrap()
    };
    let answer = shown(&bundle, &["--user", "7", "--max-per-group", "1"]);
    let slate_of = |answer: &serde_json::Value| answer["slate"].as_array().unwrap().clone();
    let groups: Vec<_> = slate_of(&answer)
        .into_iter()
        .filter_map(|item| item["group"].as_str().map(str::to_owned))
        .collect();
    assert!(groups.iter().all(|group| groups.iter().filter(|other| *other == group).count() == 1));
    assert!(groups.iter().all(|group| group.starts_with("Topic") && !group.contains('|')));
    for item in slate_of(&answer) {
        assert_eq!(item["title"], format!("Item {}", item["item_id"].as_str().unwrap()));
    }
    assert_eq!((slate_of(&answer).len(), &answer["short"]), (9, &serde_json::json!(false)));

    // A file of users gets the same slates.
    let (users, out) = (at("users.parquet"), at("slates.parquet"));
    save(vec![Column::new("user_id".into(), ["42", "7"])], Path::new(&users));
    let mut batch = slate();
    batch.args(["recommend", &bundle, "--users", &users, "--out", &out, "-k", "9"]);
    stdout(batch.args(["--max-per-group", "1"]));
    let slates = table(Path::new(&out));
    let found = slates.column("item_id").unwrap().cast(&DataType::String).unwrap();
    let expected: Vec<String> =
        slate_of(&answer).iter().map(|item| item["item_id"].as_str().unwrap().to_owned()).collect();
    let found: Vec<&str> = found.str().unwrap().iter().flatten().skip(9).collect();
    assert_eq!(found, expected);

    let wrong = |from: &str, most: &str| {
        refused(slate().args(["recommend", from, "--user", "7", "--max-per-group", most]))
    };
    assert_says(&wrong(&run, "2"), &["max_per_group", "no groups", "--titles"]);
    assert_says(&wrong(&bundle, "0"), &["max_per_group", "expected 1 or more"]);
}

fn save(columns: Vec<Column>, path: &Path) {
    let mut table = DataFrame::new_infer_height(columns).unwrap();
    ParquetWriter::new(fs_err::File::create(path).unwrap()).finish(&mut table).unwrap();
}

#[test]
fn a_file_of_users_is_answered_alike_in_parts_and_on_any_number_of_threads() {
    let place = Place::new();
    let recommender = place.bundle();
    // Several blocks of users with histories of every length, of items and not.
    let users = 9_000_u32;
    let item = |at: u32| recommender.bundle().items.ids.id(at % 290).to_owned();
    let lists: Vec<Series> = (0..users)
        .map(|user| {
            let mut ids: Vec<String> = (0..user % 9).map(|at| item(user * 31 + at * 7)).collect();
            if user % 1000 == 3 {
                ids.push("gone".into());
            }
            Series::new("".into(), ids)
        })
        .collect();
    let columns = vec![
        Column::new("user_id".into(), (0..i64::from(users)).collect::<Vec<i64>>()),
        Column::new("items".into(), lists),
    ];
    let path = place.path("users.parquet");
    save(columns, &path);

    let recommend = |out: &str, args: &[&str], threads: Option<&str>| {
        let mut command = slate();
        command.arg("recommend").arg(place.path("bundle")).arg("--users").arg(&path);
        command.arg("--out").arg(place.path(out)).args(["-k", "7", "--device", "flex"]).args(args);
        for variable in ["RAYON_NUM_THREADS", "POLARS_MAX_THREADS"] {
            if let Some(threads) = threads {
                command.env(variable, threads);
            }
        }
        stdout(&mut command)
    };
    let said = recommend("whole.parquet", &[], None);
    assert_says(&said, &["slates of 9000 users", "9 items that the catalogue does not have"]);
    for threads in ["1", "5"] {
        recommend("again.parquet", &[], Some(threads));
        let read = |name: &str| fs_err::read(place.path(name)).unwrap();
        assert!(read("again.parquet") == read("whole.parquet"), "{threads} threads");
    }
    let join = |parts: &[String]| {
        let mut command = slate();
        command.arg("join").args(parts).arg("--out").arg(place.path("joined.parquet"));
        command
    };
    // Three blocks: one each, one or two, and fewer than there are parts.
    for of in [3, 2, 5] {
        let parts = (1..=of).map(|part| {
            let name = format!("part-{part}.parquet");
            recommend(&name, &["--part", &format!("{part}/{of}")], Some("3"));
            place.path(&name).display().to_string()
        });
        let mut parts: Vec<String> = parts.collect();
        parts.rotate_left(1);
        assert_says(&stdout(&mut join(&parts)), &["63000 rows", &format!("{of} parts")]);
        let read = |name: &str| fs_err::read(place.path(name)).unwrap();
        assert!(read("joined.parquet") == read("whole.parquet"), "{of} parts");
        let error = refused(&mut join(&parts));
        assert_says(&error, &["joined.parquet: there is something here already"]);
        fs_err::remove_file(place.path("joined.parquet")).unwrap();
        let error = refused(&mut join(&[parts[0].clone(), path.display().to_string()]));
        assert_says(&error, &["users.parquet", "rank"]);
        let error = refused(&mut join(&[parts[0].clone(), parts[0].clone()]));
        assert_says(&error, &["part-2.parquet: is given twice"]);
        let error = refused(&mut join(&parts[1..]));
        assert_says(&error, &["joined.parquet: would lack 1 of", &format!(" parts: 2/{of}")]);
        assert!(!place.path("joined.parquet").exists());
    }

    // In the order of the input, and as anybody is answered.
    let slates = table(&place.path("whole.parquet"));
    assert_eq!(slates.height(), 9_000 * 7);
    let column = |name: &str| slates.column(name).unwrap().as_materialized_series().clone();
    let owners: Vec<i64> = column("user_id").i64().unwrap().iter().flatten().collect();
    assert!(owners.into_iter().eq((0..9_000 * 7).map(|row| row / 7)));
    let shown = column("item_id").cast(&DataType::String).unwrap();
    let scores = column("score");
    for user in [0, 5, 4095, 4096, 8_999] {
        let known: Vec<String> = (0..user % 9).map(|at| item(user * 31 + at * 7)).collect();
        let options = Options { slate_size: Some(7), ..Options::default() };
        let answer = one(&recommender, Who::Items(known).into(), &options);
        for (at, recommended) in answer.slate.iter().enumerate() {
            let row = user as usize * 7 + at;
            assert_eq!(shown.str().unwrap().get(row), Some(recommended.item_id.as_str()));
            assert_eq!(scores.f32().unwrap().get(row), Some(recommended.score));
        }
    }

    // Users of the bundle need no items; somebody who is not there is named.
    let column = |ids: &[&str]| save(vec![Column::new("user_id".into(), ids)], &path);
    column(&["42", "7"]);
    recommend("known.parquet", &[], None);
    let known = table(&place.path("known.parquet"));
    let first = known.column("item_id").unwrap().cast(&DataType::String).unwrap();
    let options = Options { slate_size: Some(7), ..Options::default() };
    let answer = one(&recommender, user("42"), &options);
    assert_eq!(first.str().unwrap().get(0), Some(ids(&answer)[0]));
    column(&["42", "nobody"]);
    let mut command = slate();
    command.arg("recommend").arg(place.path("bundle")).arg("--users").arg(&path);
    let error = refused(command.arg("--out").arg(place.path("none.parquet")));
    assert_says(&error, &["users.parquet: row 2: column `user_id`", "found `nobody`"]);
    assert!(!place.path("none.parquet").exists());
}

#[test]
fn a_batch_replaces_slates_and_nothing_else() {
    let place = Place::new();
    let recommender = place.bundle();
    let users = place.path("users.parquet");
    save(vec![Column::new("user_id".into(), ["7"])], &users);
    let write = |out: &Path| {
        let batch = Batch { users: &users, out, part: Part::default() };
        batch.write(&recommender, &Options::default(), |_, _| ())
    };
    let (slates, text) = (place.path("slates.parquet"), place.path("text.parquet"));
    write(&slates).unwrap();
    write(&slates).unwrap();
    fs_err::write(&text, "no Parquet").unwrap();
    let (items, histories) = ("bundle/items.parquet", "bundle/histories.parquet");
    for other in [place.path(items), place.path(histories), text, place.path("bundle")] {
        let before = other.is_file().then(|| fs_err::read(&other).unwrap());
        let error = write(&other).unwrap_err().to_string();
        let name = other.file_name().unwrap().to_str().unwrap();
        assert_says(&error, &[name, "is there already", "user_id, rank, item_id, score"]);
        assert!(other.is_dir() || before == Some(fs_err::read(&other).unwrap()));
    }
}

#[test]
fn in_a_batch_only_an_empty_list_asks_for_the_slate_of_a_stranger() {
    let place = Place::new();
    let recommender = place.bundle();
    let (users, out) = (place.path("users.parquet"), place.path("slates.parquet"));
    let batch = Batch { users: &users, out: &out, part: Part::default() };
    let write = |empty: bool| {
        let mut lists = ListStringChunkedBuilder::new("items".into(), 2, 0);
        lists.append_null();
        if empty {
            lists.append_values_iter([].iter().copied());
        } else {
            lists.append_null();
        }
        let ids = Column::new("user_id".into(), ["7", "nobody"]);
        save(vec![ids, lists.finish().into_series().into_column()], &users);
        batch.write(&recommender, &Options::default(), |_, _| ())
    };
    let summary = write(true).unwrap();
    assert_eq!((summary.users, summary.cold), (2, 1));
    fs_err::remove_file(&out).unwrap();
    let error = write(false).unwrap_err().to_string();
    assert_says(&error, &["row 2: column `user_id`: expected a user of the bundle", "`nobody`"]);
    assert!(!out.exists());
}

#[test]
fn what_an_export_may_not_write_is_refused_before_its_index_is_built() {
    let place = Place::new();
    place.train(&[]);
    for folder in ["there", "new-1-of-2"] {
        fs_err::create_dir(place.path(folder)).unwrap();
    }
    fs_err::write(place.path("file"), "").unwrap();
    let error = |out: &str, args: &[&str]| {
        let mut command = slate();
        command.arg("export").arg(place.path("run")).arg("--out").arg(place.path(out));
        // No index finds slates longer than the catalogue.
        refused(command.args(["--index", "-k", "1000"]).args(args))
    };
    assert_says(&error("new", &[]), &["a slate of 1000 actions"]);
    assert_says(&error("there", &[]), &["there: there is something here already"]);
    assert_says(&error("new", &["--shards", "0"]), &["setting `shards`", "expected 1 to 300"]);
    assert_says(&error("new", &["--shards", "2"]), &["new-1-of-2: there is something here"]);
    assert!(!error("file/new", &[]).contains("a slate of 1000"));
    assert!(!place.path("new").exists() && !place.path("new-2-of-2").exists());
}

#[test]
fn a_run_is_exported_once_and_answers_alike_from_the_command_line() {
    let place = Place::new();
    place.train(&[]);
    let at = |name: &str| place.path(name).display().to_string();
    let (run, bundle) = (at("run"), at("bundle"));
    let export = |args: &[&str]| {
        let mut command = slate();
        command.args(["export", &run, "--out", &bundle]).args(args);
        command
    };
    assert_says(&stdout(&mut export(&["--histories"])), &["bundle: step", "items.parquet"]);
    assert!(!place.path("bundle/index.usearch").exists());
    assert_says(&refused(&mut export(&[])), &["bundle: there is something here", "--force"]);
    let data = at("data");
    let error = refused(slate().args(["export", &run, "--out", &data, "--force"]));
    assert_says(&error, &["data: there is something here"]);
    let log = place.path("bundle/log");
    fs_err::create_dir(&log).unwrap();
    assert_says(&refused(&mut export(&["--force"])), &["bundle: `log` would be lost"]);
    fs_err::remove_dir(&log).unwrap();
    let said = stdout(&mut export(&["--histories", "--force", "--index", "--recall", "0.5"]));
    assert_says(&said, &["the index finds", "of the true top 5 of training users"]);
    assert!(place.path("bundle/index.usearch").exists());
    assert_says(&stdout(slate().args(["info", &bundle])), &["format = 2", "[trained.settings]"]);

    let asked = |from: &str, args: &[&str]| {
        let mut command = slate();
        stdout(command.args(["recommend", from, "--json"]).args(args))
    };
    let item = asked(&run, &["--items", ""]);
    let item: serde_json::Value = serde_json::from_str(&item).unwrap();
    let first = item["slate"][0]["item_id"].as_str().unwrap().to_owned();
    let second = item["slate"][1]["item_id"].as_str().unwrap().to_owned();
    let list = place.path("list.txt");
    fs_err::write(&list, format!("{first}\n\n {second} \nnothing\n")).unwrap();
    let list = list.display().to_string();
    for args in [
        &["--user", "7"][..],
        &["--items", &first, "-k", "9"],
        &["--items", &first, "--exclude-seen=false"],
        &["--items", &first, "--exclude", &second],
        &["--items", "", "--deny", &list],
        &["--items", "", "--allow", &list],
    ] {
        assert_eq!(asked(&run, args), asked(&bundle, &[args, &["--exact"]].concat()), "{args:?}");
    }
    let denied = asked(&bundle, &["--items", "", "--deny", &list]);
    assert!(
        !denied.contains(&format!("\"{first}\"")) && !denied.contains(&format!("\"{second}\""))
    );

    let wrong = |args: &[&str]| refused(slate().args(["recommend", &bundle]).args(args));
    assert_says(
        &wrong(&["--user", "7", "--checkpoint", "last"]),
        &["--checkpoint belongs to a run"],
    );
    assert_says(&wrong(&["--user", "7", "-k", "0"]), &["a slate of 0 actions"]);
    assert_says(&wrong(&["--context", "1,2"]), &["context 1: expected shape [32], found [2]"]);
    fs_err::write(place.path("list.txt"), "nothing").unwrap();
    assert_says(&wrong(&["--user", "7", "--allow", &list]), &["--allow", "list.txt", "no item"]);
    slate().args(["recommend", &bundle, "--users", "x.parquet"]).assert().code(2);
}

#[test]
fn shards_of_a_bundle_answer_together_as_the_whole_does() {
    let place = Place::new();
    let bundle = indexed(&place.train(&[]));
    let out = place.path("whole");
    bundle.write_sharded(&out, 3, VectorScalar::F32, false).unwrap();
    let whole = opened(&out).unwrap();
    let shards: Vec<Recommender> =
        shard_folders(&out, 3).iter().map(|folder| opened(folder).unwrap()).collect();
    let users: Vec<Request> = whole.bundle().users.as_ref().unwrap().ids.iter().map(user).collect();
    for search in [Search::Exact, Search::Hnsw] {
        let parts: Vec<_> = shards.iter().map(|it| it.shard(Some(search)).unwrap()).collect();
        let together = whole.clone().through(Arc::new(parts));
        let [expected, found] =
            [&whole, &together].map(|of| of.recommend(&users, &exact()).unwrap());
        match search {
            Search::Exact => assert_eq!(bits(&found), bits(&expected)),
            // Each shard's graph misses less than one of the whole.
            Search::Hnsw => {
                let hits = |pair: (&Answer, &Answer)| {
                    let wanted = ids(pair.1);
                    ids(pair.0).iter().filter(|id| wanted.contains(id)).count()
                };
                let hits: usize = found.iter().zip(&expected).map(hits).sum();
                assert!(hits as f64 >= 0.95 * 5.0 * users.len() as f64, "{hits}");
            }
        }
    }
    // A shard by itself is a bundle of its items, whose context is the query.
    let part = shards[1].bundle().part.clone().unwrap();
    assert_eq!((part.index, part.of, part.num_actions), (2, 3, 300));
    assert_eq!(Some(part.whole.as_str()), whole.digest());
    let query = Options { queries: true, ..exact() };
    let h = one(&whole, users[0].clone(), &query).query.unwrap().h;
    let own = one(&shards[1], Who::Context(h).into(), &exact());
    let first = whole.bundle().items.ids.id(part.first);
    assert_eq!(shards[1].bundle().items.ids.id(0), first);
    assert_eq!(own.slate.len(), 5);
}

#[test]
fn shards_are_written_all_or_none() {
    let place = Place::new();
    let bundle = place.train(&[]).bundle(false).unwrap();
    let out = place.path("whole");
    let write = |count| bundle.write_sharded(&out, count, VectorScalar::F32, false);
    for count in [0, 301] {
        let error = write(count).unwrap_err().to_string();
        assert!(error.contains("shards") && error.contains("1 to 300"), "{error}");
    }
    fs_err::create_dir(&shard_folders(&out, 2)[1]).unwrap();
    let error = write(2).unwrap_err().to_string();
    assert!(error.contains("whole-2-of-2"), "{error}");
    assert!(!out.exists() && !shard_folders(&out, 2)[0].exists());
}
