//! A server that asks shards answers as one that holds the catalogue; it lives without some of them,
//! says so, and never mixes bundles.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fast_slate::bundle::{VectorScalar, shard_folders};
use fast_slate::facade::{Policy, Which};
use fast_slate::settings::{Preset, SettingsBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{assert_says, refused, slate, small};
use crate::server::Server;

const SHARDS: usize = 3;

/// Two bundles of one catalogue, each with three shards, and links that lead to the first.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let prepared = small(&folder.path().join("data"));
        for seed in [1, 2] {
            let mut builder = SettingsBuilder::new(&prepared.preset(Preset::Default)).unwrap();
            let seed_set = format!("seed={seed}");
            for set in ["budget.amount=8", "evaluation.count=1", &seed_set] {
                builder = builder.assignment(set).unwrap();
            }
            let run = folder.path().join(format!("run-{seed}"));
            prepared.train(&builder.build().unwrap(), &run).unwrap();
            let policy = Policy::open(&run, Which::Last, Some("flex")).unwrap();
            let out = folder.path().join(format!("bundle-{seed}"));
            let bundle = policy.bundle(true).unwrap();
            bundle.write_sharded(&out, SHARDS, VectorScalar::F32, false).unwrap();
        }
        let place = Self { folder };
        (0..=SHARDS).for_each(|at| place.link(at, 1));
        place
    }

    /// The link of a shard, from 1, or of the whole, 0.
    fn at(&self, shard: usize) -> PathBuf {
        self.folder.path().join(format!("link-{shard}"))
    }

    /// Lets a link lead to the bundle of a seed.
    fn link(&self, shard: usize, seed: u32) {
        let whole = self.folder.path().join(format!("bundle-{seed}"));
        let to = match shard {
            0 => whole,
            _ => shard_folders(&whole, SHARDS).swap_remove(shard - 1),
        };
        let fresh = self.folder.path().join("fresh");
        std::os::unix::fs::symlink(to, &fresh).unwrap();
        fs_err::rename(fresh, self.at(shard)).unwrap();
    }

    fn shard(&self, shard: usize) -> Server {
        Server::start(&self.at(shard), &[], &[])
    }

    fn front(&self, addresses: &str, args: &[&str]) -> Server {
        let args = [&["--shards", addresses, "--shard-timeout", "300"], args].concat();
        Server::start(&self.at(0), &args, &[])
    }
}

fn addresses(shards: &[Server]) -> String {
    let all: Vec<String> = shards.iter().map(|shard| format!("http://{}", shard.address)).collect();
    all.join(",")
}

/// Repeats `question` until `done`, for at most ten seconds.
fn until(question: impl Fn() -> u16, done: u16) {
    let started = Instant::now();
    while question() != done {
        assert!(started.elapsed() < Duration::from_secs(10), "not {done} in time");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn ready(front: &Server) -> u16 {
    front.get("/readyz").status
}

/// Items and scores.
fn shown(answer: &Value) -> Value {
    answer["slate"].clone()
}

#[test]
fn a_front_answers_as_a_server_of_the_whole_does() {
    let place = Place::new();
    let alone = Server::start(&place.at(0), &[], &[]);
    let shards: Vec<Server> = (1..=SHARDS).map(|at| place.shard(at)).collect();
    let front = place.front(&addresses(&shards), &[]);
    until(|| ready(&front), 200);
    for user in 1..40 {
        for more in [json!({}), json!({"k": 40, "exclude_seen": false, "deny": ["1", "7", "30"]})] {
            let mut body = more;
            body["user"] = json!(user.to_string());
            let answer = front.slates(body.clone());
            assert_eq!(shown(&answer), shown(&alone.slates(body)), "{user}");
            assert_eq!(answer["shards"], json!({"answered": SHARDS, "of": SHARDS}));
        }
    }
    let requests: Vec<Value> = (1..200).map(|at| json!({"items": [at]})).collect();
    let many = json!({"requests": requests, "allow": (1..290).collect::<Vec<_>>()});
    let [ours, theirs] = [&front, &alone].map(|server| server.slates(many.clone()));
    let slates = |all: &Value| -> Vec<Value> {
        all["answers"].as_array().unwrap().iter().map(shown).collect()
    };
    assert_eq!(slates(&ours), slates(&theirs));
}

#[test]
fn a_shard_of_fewer_items_than_a_slate_is_served() {
    let place = Place::new();
    let run = place.folder.path().join("run-1");
    let policy = Policy::open(&run, Which::Last, Some("flex")).unwrap();
    let (out, count) = (place.folder.path().join("fine"), 100);
    policy.bundle(true).unwrap().write_sharded(&out, count, VectorScalar::F32, false).unwrap();
    let shard = Server::start(&shard_folders(&out, count)[7], &[], &[]);
    assert_eq!(ready(&shard), 200);
}

#[test]
fn a_front_goes_on_without_a_shard_and_says_so() {
    let place = Place::new();
    let mut shards: Vec<Server> = (1..=SHARDS).map(|at| place.shard(at)).collect();
    let at = addresses(&shards);
    let log = place.folder.path().join("log");
    let args = ["--min-shards", "2", "--log", log.to_str().unwrap()];
    let (front, strict) = (place.front(&at, &args), place.front(&at, &[]));
    until(|| ready(&front), 200);
    let whole = front.slates(json!({"user": "5", "k": 100}));
    shards[1].signal("-STOP");

    let part = front.slates(json!({"user": "5", "k": 100}));
    assert_eq!(part["shards"], json!({"answered": 2, "of": SHARDS}));
    assert_eq!(part["slate"].as_array().unwrap().len(), 100);
    assert_ne!(shown(&part), shown(&whole));
    // What only the missing shard has is no fault of who asks.
    let all = json!({"user": "5", "k": 250, "exclude_seen": false});
    assert_eq!(front.post("/v1/slates", &all).problem(), (503, "shards".into()));
    // Who explores gets the whole answer or none.
    let explored = json!({"user": "5", "explore": true});
    let reply = front.post("/v1/slates", &explored);
    assert_eq!(reply.problem(), (503, "shards".into()));
    assert_says(&reply.body, &["2 of 3 shards answered"]);
    assert_eq!(strict.post("/v1/slates", &json!({"user": "5"})).problem().0, 503);
    until(|| ready(&strict), 503);
    assert_eq!(ready(&front), 200);
    assert_says(&front.get("/metrics").body, &["slate_shards_missing_total"]);

    shards[1].signal("-CONT");
    until(|| ready(&strict), 200);
    assert_eq!(shown(&strict.slates(json!({"user": "5", "k": 100}))), shown(&whole));
    assert_eq!(front.slates(explored)["shards"]["answered"], SHARDS);

    // Two are gone: too few.
    shards.truncate(1);
    assert_eq!(front.post("/v1/slates", &json!({"user": "5"})).problem().0, 503);
}

#[test]
fn another_replica_answers_for_one_that_does_not() {
    let place = Place::new();
    let mut shards: Vec<Server> = [1, 2, 3, 2].map(|at| place.shard(at)).into();
    let of = |at: usize| format!("http://{}", shards[at].address);
    let at = format!("{},{}|{},{}", of(0), of(1), of(3), of(2));
    let front = place.front(&at, &[]);
    until(|| ready(&front), 200);
    let whole = front.slates(json!({"user": "5"}));
    drop(shards.remove(1));
    for _ in 0..20 {
        let answer = front.slates(json!({"user": "5"}));
        assert_eq!(shown(&answer), shown(&whole));
        assert_eq!(answer["shards"]["answered"], SHARDS);
    }
    assert_eq!(ready(&front), 200);
}

#[test]
fn an_address_in_the_place_of_another_part_gives_no_answer() {
    let place = Place::new();
    let servers: Vec<Server> = [1, 2, 3, 0].map(|at| place.shard(at)).into();
    let at = |of: &[usize]| {
        let all = of.iter().map(|of| format!("http://{}", servers[*of].address));
        all.collect::<Vec<_>>().join(",")
    };
    // One twice, one too few, two that changed places, the whole beside parts.
    let wrong = [
        (at(&[0, 1, 1]), "holds part 2 of 3, expected part 3 of 3"),
        (at(&[0, 1]), "holds part 1 of 3, expected part 1 of 2"),
        (at(&[0, 2, 1]), "holds part 3 of 3, expected part 2 of 3"),
        (at(&[3, 1, 2]), "holds part 1 of 1, expected part 1 of 3"),
    ];
    for (addresses, said) in wrong {
        let front = place.front(&addresses, &[]);
        // The first look may not be over.
        let started = Instant::now();
        while !front.get("/readyz").body.contains(said) {
            assert!(started.elapsed() < Duration::from_secs(10), "{}", front.get("/readyz").body);
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(ready(&front), 503);
        assert_eq!(front.post("/v1/slates", &json!({"user": "5"})).problem().0, 503);
    }
    // A replica of another part is not asked for an answer; the right one gives it.
    let mixed = format!("{}|http://{},{}", at(&[0]), servers[1].address, at(&[1, 2]));
    let front = place.front(&mixed, &[]);
    until(|| ready(&front), 200);
    let alone = place.front(&at(&[0, 1, 2]), &[]);
    until(|| ready(&alone), 200);
    for _ in 0..10 {
        let [ours, theirs] = [&front, &alone].map(|front| front.slates(json!({"user": "5"})));
        assert_eq!(shown(&ours), shown(&theirs));
        assert_eq!(ours["shards"]["answered"], SHARDS);
    }
}

#[test]
fn a_reload_waits_for_the_shards_and_never_mixes_bundles() {
    let place = Place::new();
    let shards: Vec<Server> = (1..=SHARDS).map(|at| place.shard(at)).collect();
    let front = place.front(&addresses(&shards), &[]);
    until(|| ready(&front), 200);
    let reload = |server: &Server| server.post("/v1/reload", &json!({})).status;
    let before = front.slates(json!({"user": "5"}));

    place.link(0, 2);
    let reply = front.post("/v1/reload", &json!({}));
    assert_eq!(reply.problem(), (409, "bundle-refused".into()));
    assert_says(&reply.body, &["3 of 3 shards do not have it", "load it there first"]);
    // Shards that went ahead answer for both.
    for (at, shard) in shards.iter().enumerate() {
        place.link(at + 1, 2);
        // Perhaps by two who do not know of each other.
        assert_eq!([reload(shard), reload(shard)], [200, 200]);
        let answer = front.slates(json!({"user": "5"}));
        assert_eq!((&answer["bundle"], shown(&answer)), (&before["bundle"], shown(&before)));
        assert_eq!(answer["shards"]["answered"], SHARDS);
    }
    assert_eq!(reload(&front), 200);
    let after = front.slates(json!({"user": "5"}));
    assert_ne!(after["bundle"], before["bundle"]);
    assert_eq!(after["shards"]["answered"], SHARDS);
    let alone = Server::start(&place.at(0), &[], &[]);
    assert_eq!(shown(&after), shown(&alone.slates(json!({"user": "5"}))));
}

#[test]
fn only_operators_search_and_only_for_what_is_there() {
    let place = Place::new();
    let token = "a token that nobody guesses";
    let variables = [("FAST_SLATE_ADMIN_TOKEN", token)];
    let shards: Vec<Server> =
        (1..=SHARDS).map(|at| Server::start(&place.at(at), &[], &variables)).collect();
    let question = |headers: &[(&str, &str)], body: &str| {
        let headers = [headers, &[("content-type", "application/octet-stream")]].concat();
        shards[0].ask("POST /v1/search", &headers, body).problem()
    };
    assert_eq!(question(&[], "").0, 401);
    let bearer = format!("Bearer {token}");
    let admin = ("authorization", bearer.as_str());
    assert_eq!(question(&[admin], "slate/q1"), (400, "no-question".into()));
    let mut other = format!("slate/q1{}", "ab".repeat(32));
    // K = 1, not exact, no queries of no numbers.
    for word in [1_u32, 0, 0, 1, 0] {
        other += std::str::from_utf8(&word.to_le_bytes()).unwrap();
    }
    assert_eq!(question(&[admin], &other), (409, "other-bundle".into()));

    let at = addresses(&shards);
    let closed = place.front(&at, &[]);
    assert_eq!(closed.post("/v1/slates", &json!({"user": "5"})).problem().0, 503);
    let args = ["--shards", at.as_str()];
    let open = Server::start(&place.at(0), &args, &[("FAST_SLATE_SHARD_TOKEN", token)]);
    until(|| ready(&open), 200);
    let answer = open.slates(json!({"user": "5"}));
    assert_eq!(answer["shards"]["answered"], SHARDS);
    // With few items of a group, more are looked through than a slate may show: K = 4 096.
    let deep = |latent_dim: u32| {
        let mut body = format!("slate/q1{}", answer["bundle"].as_str().unwrap());
        for word in [4096_u32, 1, 0, latent_dim, 0] {
            body += std::str::from_utf8(&word.to_le_bytes()).unwrap();
        }
        let headers = [admin, ("content-type", "application/octet-stream")];
        shards[0].ask("POST /v1/search", &headers, &body).status
    };
    assert_eq!((deep(16), deep(17)), (200, 422));

    let bundle = place.at(0);
    let serve = |args: &[&str]| refused(slate().args(args).env("FAST_SLATE_SHARD_TOKEN", token));
    let whole = bundle.to_str().unwrap();
    let said = slate().args(["serve", whole, "--shards", "a:1"]).output().unwrap().stderr;
    assert_says(&String::from_utf8(said).unwrap(), &["`a:1` is no address", "http://host:port"]);
    let said = serve(&["serve", whole, "--shards", &at, "--min-shards", "4"]);
    assert_says(&said, &["min-shards", "1 to 3"]);
}
