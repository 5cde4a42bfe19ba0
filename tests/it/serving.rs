//! `slate serve` answers as `slate recommend` does; refuses what it should with the right status and
//! lives on; changes bundles under load; loses nothing that it has acknowledged.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fast_slate::bundle::{Answer, Options, Recommender, VectorScalar, Who};
use fast_slate::dataset::{ItemSource, ItemTable};
use fast_slate::device;
use fast_slate::facade::{Policy, Which};
use fast_slate::log::Log;
use fast_slate::settings::{Preset, SettingsBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{assert_says, limited, process, refused, slate, small, stdout};
use crate::server::{JSON, Reply, Server};

/// Two bundles of runs that differ, and a link that leads to the first. The items of the first are in
/// twelve groups.
struct Place {
    folder: TempDir,
    digests: [String; 2],
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let prepared = small(&folder.path().join("data"));
        let path = folder.path().join("items.csv");
        let rows: Vec<String> = (1..=300).map(|id| format!("{id},Topic {}\n", id % 12)).collect();
        fs_err::write(&path, "item_id,group\n".to_owned() + &rows.concat()).unwrap();
        let item_column = "item_id".into();
        let source = ItemSource { path, item_column, title_column: None, group_column: None };
        let groups = ItemTable::read(source).unwrap();
        let digests = [1, 2].map(|seed| {
            let mut builder = SettingsBuilder::new(&prepared.preset(Preset::Default)).unwrap();
            let seed_set = format!("seed={seed}");
            for set in [
                "budget.amount=8",
                "evaluation.count=1",
                "optimizer.learning_rate=0.05",
                "tower.kind=sigmoid-mlp",
                &seed_set,
            ] {
                builder = builder.assignment(set).unwrap();
            }
            let run = folder.path().join(format!("run-{seed}"));
            prepared.train(&builder.build().unwrap(), &run).unwrap();
            // The best may be the start, which is the same for both.
            let policy = Policy::open(&run, Which::Last, Some("flex")).unwrap();
            let out = folder.path().join(format!("bundle-{seed}"));
            let mut bundle = policy.bundle(true).unwrap();
            if seed == 1 {
                bundle.index = Some(policy.index(5, 0.95).unwrap().0);
                groups.label(&mut bundle.items).unwrap();
            }
            bundle.write(&out, VectorScalar::F32, false).unwrap();
            opened(&out).digest().unwrap().to_owned()
        });
        let place = Self { folder, digests };
        place.link(1);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Lets the link lead to a bundle, at once.
    fn link(&self, bundle: usize) {
        let fresh = self.path("fresh");
        std::os::unix::fs::symlink(self.path(&format!("bundle-{bundle}")), &fresh).unwrap();
        fs_err::rename(fresh, self.path("bundle")).unwrap();
    }

    fn serve(&self, args: &[&str]) -> Server {
        Server::start(&self.path("bundle"), args, &[])
    }

    fn log(&self) -> String {
        self.path("log").to_str().unwrap().to_owned()
    }
}

fn opened(folder: &Path) -> Recommender {
    Recommender::open(folder, &device::choose(Some("flex")).unwrap().device).unwrap()
}

/// Ids, and the bits of scores.
fn shown(answer: &Value) -> Vec<(String, u32)> {
    let items = answer["slate"].as_array().unwrap().iter();
    let bits = |item: &Value| (item["score"].as_f64().unwrap() as f32).to_bits();
    items.map(|item| (item["item_id"].as_str().unwrap().to_owned(), bits(item))).collect()
}

fn wanted(answer: &Answer) -> Vec<(String, u32)> {
    answer.slate.iter().map(|item| (item.item_id.clone(), item.score.to_bits())).collect()
}

#[test]
fn a_server_answers_as_the_bundle_does() {
    let place = Place::new();
    let alone = opened(&place.path("bundle"));
    let server = place.serve(&[]);
    let item = |at: u32| alone.bundle().items.ids.id(at).to_owned();
    let of =
        |who: Who, options: &Options| wanted(&alone.recommend(&[who.into()], options).unwrap()[0]);
    let usual = Options::default();
    for user in 1..40 {
        let answer = server.slates(json!({"user": user}));
        let who = Who::User { id: user.to_string(), newer: Vec::new() };
        assert_eq!(shown(&answer), of(who, &usual));
        assert_eq!(answer["bundle"], place.digests[0]);
        assert_eq!((&answer["cold"], &answer["explored"]), (&json!(false), &json!(false)));
    }
    let newer = json!({"user": "7", "newer": [item(3)], "exclude_seen": false, "k": 9});
    let who = Who::User { id: "7".into(), newer: vec![item(3)] };
    let open = Options { exclude_seen: false, slate_size: Some(9), ..Options::default() };
    assert_eq!(shown(&server.slates(newer)), of(who, &open));
    let context: Vec<f32> = (0..alone.context_dim()).map(|at| at as f32 / 7.0 - 1.0).collect();
    let raw = server.slates(json!({"context": context}));
    assert_eq!(shown(&raw), of(Who::Context(context), &usual));

    // Many at once, each with an exclusion of its own, and lists for all of them.
    let requests: Vec<Value> = (0..300)
        .map(|at| json!({"items": [item(at % 50), item(at % 7), "gone"], "exclude": [item(60)]}))
        .collect();
    let deny = [item(0), item(1), "never".into()];
    let many = server.slates(json!({"requests": requests, "deny": deny, "k": 3}));
    assert_eq!(many["ignored"], json!(["never"]));
    let answers = many["answers"].as_array().unwrap();
    assert_eq!(answers.len(), 300);
    for (at, answer) in (0..).zip(answers) {
        let one = json!({
            "items": [item(at % 50), item(at % 7), "gone"],
            "exclude": [item(60)], "deny": [item(0), item(1)], "k": 3,
        });
        assert_eq!(shown(answer), shown(&server.slates(one)));
        assert_eq!(answer["ignored"], json!(["gone"]));
    }
    let one = server.slates(json!({"items": ["gone", item(2)], "deny": deny}));
    assert_eq!(one["ignored"], json!(["gone", "never"]));

    // Few items of a group.
    let mixed = server.slates(json!({"user": 7, "k": 9, "max_per_group": 1}));
    let groups: std::collections::HashSet<&str> = mixed["slate"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["group"].as_str().unwrap())
        .collect();
    assert_eq!(groups.len(), 9);
    let limit = Options { slate_size: Some(9), max_per_group: Some(1), ..Options::default() };
    assert_eq!(shown(&mixed), of(Who::User { id: "7".into(), newer: Vec::new() }, &limit));

    // Nobody and nothing.
    let stranger = server.slates(json!({"items": []}));
    assert_eq!((&stranger["cold"], &stranger["short"]), (&json!(true), &json!(false)));
    let few = server.slates(json!({"items": [item(5)], "allow": [item(1), item(2)]}));
    assert_eq!((few["slate"].as_array().unwrap().len(), &few["short"]), (2, &json!(true)));
    let all: std::collections::HashSet<String> =
        answers.iter().map(|answer| answer["request_id"].to_string()).collect();
    assert_eq!(all.len(), 300, "a request id came twice");

    let about = server.get("/v1/bundle").json();
    assert_eq!(about["digest"], place.digests[0]);
    assert_eq!((&about["num_actions"], &about["groups"]), (&json!(300), &json!(true)));
    let found = server.get("/v1/items?q=1&limit=3").json();
    let found = found["items"].as_array().unwrap();
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|item| item["item_id"].as_str().unwrap().starts_with('1')));
    assert!(found.iter().all(|item| item["group"].as_str().unwrap().starts_with("Topic")));
    assert_eq!(server.get("/v1/items").json()["items"][0]["item_id"], item(0));
    for path in ["/livez", "/readyz", "/", "/page.js", "/page.css", "/openapi.json"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let interface = server.get("/openapi.json").json();
    for path in ["/v1/slates", "/v1/feedback", "/v1/items", "/v1/reload", "/metrics"] {
        assert!(interface["paths"][path].is_object(), "{path}");
    }
    let numbers = server.get("/metrics").body;
    assert_says(&numbers, &["slate_slates_total{explored=\"false\"} 6", "route=\"/v1/slates\""]);
}

#[test]
fn bad_requests_are_refused_by_name_and_the_server_lives_on() {
    let place = Place::new();
    let server = place.serve(&[]);
    let dim = opened(&place.path("bundle")).context_dim();
    let refused = |body: Value, status: u16, code: &str| {
        let reply = server.post("/v1/slates", &body);
        assert_eq!(reply.problem(), (status, code.to_owned()), "{body}: {}", reply.body);
    };
    refused(json!({}), 422, "who");
    refused(json!({"items": ["1"], "user": "1"}), 422, "who");
    refused(json!({"newer": ["1"], "items": ["2"]}), 422, "who");
    refused(json!({"items": ["1"], "requests": []}), 422, "who");
    refused(json!({"requests": [{"items": ["1"]}, {}]}), 422, "who");
    refused(json!({"requests": vec![json!({"items": []}); 1025]}), 422, "batch-size");
    let strangers = vec![json!({"items": []}); 1024];
    refused(json!({"requests": strangers, "k": 200}), 422, "batch-size");
    refused(json!({"items": ["no", "such"]}), 422, "unknown-items");
    let second = json!({"requests": [{"items": ["1"]}, {"items": vec!["no"; 1000]}]});
    let reply = server.post("/v1/slates", &second);
    assert_eq!(reply.problem(), (422, "unknown-items".into()));
    assert_says(&reply.body, &["requests[1]: the catalogue has none of no, no, ", "and 995 more"]);
    // A problem names the request and the field that it is about, as the interface calls them.
    for (body, says) in [
        (json!({"requests": [{"user": "1"}, {"user": "nobody"}]}), "requests[1]: no user `nobody`"),
        (
            json!({"requests": [{"items": ["1"]}, {"context": [0.5]}]}),
            "requests[1]: `context`: expected shape",
        ),
        (json!({"context": [0.5]}), "\"detail\":\"`context`: expected shape"),
        (json!({"items": ["1"], "k": 301}), "\"detail\":\"`k` is 301, expected 1 to 300\""),
    ] {
        let reply = server.post("/v1/slates", &body);
        assert_eq!(reply.status, 422, "{body}");
        assert_says(&reply.body, &[says]);
    }
    refused(json!({"user": "nobody"}), 422, "unknown-user");
    refused(json!({"user": u64::MAX}), 422, "unknown-user");
    refused(json!({"items": ["1"], "k": 0}), 422, "slate-size");
    refused(json!({"items": ["1"], "k": 301}), 422, "slate-size");
    refused(json!({"items": ["1"], "k": 1_000_000}), 422, "slate-size");
    refused(json!({"items": ["1"], "k": -1}), 422, "body");
    refused(json!({"items": ["1"], "kk": 1}), 422, "body");
    refused(json!({"items": ["1"], "max_per_group": 0}), 422, "body");
    refused(json!({"items": [1.5]}), 422, "body");
    refused(json!({"items": ["1"], "allow": ["nothing"]}), 422, "nothing-allowed");
    refused(json!({"items": ["1"], "allow": ["2"], "strict": true}), 422, "short");
    refused(json!({"context": vec![0.5; dim + 1]}), 422, "context");
    // No number of 32 bits.
    refused(json!({"context": vec![1e300; dim]}), 400, "not-json");
    refused(json!({"items": ["1"], "explore": true}), 422, "no-log");
    let plain = Server::start(&place.path("bundle-2"), &[], &[]);
    let reply = plain.post("/v1/slates", &json!({"items": ["1"], "max_per_group": 2}));
    assert_eq!(reply.problem(), (422, "no-groups".into()));
    assert_eq!(plain.get("/v1/bundle").json()["groups"], false);
    // Each row of a log has its own lists, so few long ids are as much as many short ones.
    let long: Vec<String> = (0..100).map(|id| format!("{id:0>300}")).collect();
    let listed = json!({"requests": vec![json!({"items": ["1"]}); 1000], "deny": long});
    assert_eq!(server.post("/v1/slates", &listed).status, 200);
    let logging = place.serve(&["--log", &place.log()]);
    let reply = logging.post("/v1/slates", &listed);
    assert_eq!(reply.problem(), (422, "batch-size".into()));
    assert_says(&reply.body, &["30000 bytes of `allow` and `deny`: up to 16777216 bytes"]);
    drop(logging);
    let many = json!({"items": vec!["1234567890"; 200_000]});
    refused(many, 413, "too-large");

    let raw = |body: &str| server.ask("POST /v1/slates", &[JSON], body).problem();
    assert_eq!(raw("no json"), (400, "not-json".into()));
    assert_eq!(raw("{\"context\": [NaN]}"), (400, "not-json".into()));
    assert_eq!(raw(&"[".repeat(100_000)), (400, "not-json".into()));
    assert_eq!(raw("").1, "not-json");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let reply = server.ask("POST /v1/slates", &form, "items=1");
    assert_eq!(reply.problem(), (415, "not-json".into()));
    assert_eq!(server.ask("POST /v1/reload", &[], "").problem().0, 415);
    assert_eq!(server.get("/v1/slates").problem(), (405, "method".into()));
    assert_eq!(server.get("/../Cargo.toml").problem(), (404, "not-found".into()));
    assert_eq!(server.get("/v1/items?limit=many").problem(), (400, "query".into()));
    let unlogged = json!({"request_id": "x", "position": 0, "value": 1, "event_id": "e"});
    assert_eq!(server.post("/v1/feedback", &unlogged).problem(), (422, "no-log".into()));
    assert_eq!(server.slates(json!({"items": ["1"]}))["short"], false);
}

#[test]
fn only_those_who_may_are_answered() {
    let place = Place::new();
    let (read, admin) = ("r".repeat(32), "a".repeat(32));
    let tokens = [("FAST_SLATE_READ_TOKEN", &*read), ("FAST_SLATE_ADMIN_TOKEN", &*admin)];
    let args = ["--allowed-hosts", "slates.example", "--cors-origin", "https://shop.example"];
    let server = Server::start(&place.path("bundle"), &args, &tokens);
    let bearer = |token: &str| format!("Bearer {token}");
    let with = |token: &str, line: &str, body: &str| {
        let value = bearer(token);
        let headers = [JSON, ("authorization", value.as_str())];
        server.ask(line, &headers, body).status
    };
    let one = r#"{"items": ["1"]}"#;
    for (line, body, reader, operator) in [
        ("POST /v1/slates", one, 200, 200),
        ("GET /v1/items?q=1", "", 200, 200),
        ("GET /v1/bundle", "", 200, 200),
        ("POST /v1/reload", "", 401, 200),
        ("GET /metrics", "", 401, 200),
        ("GET /livez", "", 200, 200),
        ("GET /readyz", "", 200, 200),
        ("GET /", "", 200, 200),
    ] {
        assert_eq!(with(&read, line, body), reader, "{line}");
        assert_eq!(with(&admin, line, body), operator, "{line}");
        let nobody = if line.contains("/v1/") || line.contains("metrics") { 401 } else { 200 };
        for token in ["", "r", "wrong wrong wrong wrong", &read[1..]] {
            assert_eq!(with(token, line, body), nobody, "{line}");
        }
        assert_eq!(server.ask(line, &[JSON], body).status, nobody, "{line}");
    }
    let refusal = server.get("/v1/bundle");
    assert_eq!(refusal.problem(), (401, "token".into()));
    // One token alone leaves nothing open.
    for (variable, token, reads, operates) in [(0, &read, 200, 401), (1, &admin, 200, 200)] {
        let server = Server::start(&place.path("bundle"), &[], &tokens[variable..=variable]);
        let value = bearer(token);
        for (line, status) in [("GET /v1/bundle", reads), ("GET /metrics", operates)] {
            assert_eq!(server.ask(line, &[("authorization", &value)], "").status, status, "{line}");
            assert_eq!(server.ask(line, &[], "").status, 401, "{line}");
        }
    }
    assert_says(&refusal.head, &["www-authenticate: bearer"]);

    // Another name that leads here is not this server, unless it was allowed.
    for (host, status) in [
        ("slates.example", 200),
        ("SLATES.example", 200),
        ("evil.example", 421),
        ("", 421),
        (server.address.replace("127.0.0.1", "localhost").as_str(), 200),
    ] {
        assert_eq!(server.ask("GET /livez", &[("host", host)], "").status, status, "{host}");
    }
    // Browsers are told what a page of this server may do, and which others may ask.
    let page = server.ask("GET /", &[("origin", "https://shop.example")], "");
    assert_says(
        &page.head,
        &[
            "content-security-policy: default-src 'self'; frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "access-control-allow-origin: https://shop.example",
        ],
    );
    let preflight = [
        ("origin", "https://shop.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    let allowed = server.ask("OPTIONS /v1/slates", &preflight, "");
    assert_eq!(allowed.status, 200);
    assert_says(&allowed.head, &["access-control-allow-headers: authorization,content-type"]);
    let plain = place.serve(&[]);
    let silent = plain.ask("GET /", &[("origin", "https://shop.example")], "");
    assert!(!silent.head.contains("access-control"), "{}", silent.head);

    // Nothing is open to others by accident.
    let mut open = slate();
    open.arg("serve").arg(place.path("bundle")).args(["--listen", "0.0.0.0:0"]);
    assert_says(&refused(&mut open), &["listen", "--read-token-file", "--insecure"]);
    let mut short = slate();
    short.arg("serve").arg(place.path("bundle")).env("FAST_SLATE_READ_TOKEN", "secret");
    assert_says(&refused(&mut short), &["FAST_SLATE_READ_TOKEN", "16 characters"]);
    assert_eq!(with(&read, "POST /v1/slates", r#"{"items": ["1"], "explore": true}"#), 422);
}

#[test]
fn slow_and_too_many_clients_are_turned_away() {
    let place = Place::new();
    let server = place.serve(&["--timeout", "1", "--max-connections", "20"]);
    // A head and a body that never end.
    let mut head = server.connect();
    head.write_all(b"POST /v1/slates HTTP/1.1\r\nhost: ").unwrap();
    let mut idle = server.connect();
    let mut body = server.connect();
    let start = format!(
        "POST /v1/slates HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: \
         50\r\n\r\n{{\"items\"",
        server.address
    );
    body.write_all(start.as_bytes()).unwrap();
    let started = Instant::now();
    assert_eq!(Reply::read(body).problem(), (408, "timeout".into()));
    let mut rest = Vec::new();
    let _ = head.read_to_end(&mut rest);
    let _ = idle.read_to_end(&mut rest);
    assert!(started.elapsed() < Duration::from_secs(20), "a slow client was waited for");

    // More connections than may be open: each is told so, and they are taken when others have gone.
    let open: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    let told = (0..200).find_map(|_| {
        let reply = server.get("/livez");
        (reply.status == 429).then_some(reply)
    });
    let told = told.expect("the connections were not limited");
    assert_eq!(told.problem(), (429, "connections".into()));
    assert_says(&told.head, &["retry-after: 1"]);
    drop(open);
    let back = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        server.get("/livez").status == 200
    });
    assert!(back, "the server did not come back");

    // A head that is too large.
    let cookie = "x".repeat(100_000);
    assert_eq!(server.ask("GET /livez", &[("cookie", &cookie)], "").status, 431);
    assert_eq!(server.slates(json!({"items": ["1"]}))["cold"], false);
}

#[test]
fn who_does_not_read_is_left() {
    let place = Place::new();
    let server = place.serve(&["--timeout", "1"]);
    let mut client = server.connect();
    client.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    // Answers fill every buffer between server and client, and then the server's time.
    let request = format!("GET /openapi.json HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    let started = Instant::now();
    let left = loop {
        if let Err(error) = client.write_all(request.as_bytes()) {
            use std::io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, WouldBlock};
            match error.kind() {
                ConnectionReset | BrokenPipe => break true,
                WouldBlock | TimedOut if started.elapsed() < Duration::from_secs(30) => {}
                _ => break false,
            }
        }
    };
    assert!(left, "the server waits for a client that does not read");
    assert_eq!(server.get("/livez").status, 200);
}

#[test]
fn a_mapped_bundle_is_checked_beside_the_requests() {
    let place = Place::new();
    let wanted = place.serve(&[]).slates(json!({"items": ["1", "2"]}));
    let server = place.serve(&["--mmap"]);
    assert_eq!(shown(&server.slates(json!({"items": ["1", "2"]}))), shown(&wanted));
    assert_eq!(server.get("/readyz").status, 200);
    drop(server);

    let path = place.path("bundle-1/vectors.safetensors");
    let mut bytes = fs_err::read(&path).unwrap();
    let last = bytes.len() - 4;
    bytes[last] ^= 1;
    fs_err::write(&path, bytes).unwrap();
    let server = place.serve(&["--mmap"]);
    let found = (0..500).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let reply = server.get("/readyz");
        (reply.status != 200).then(|| reply.problem())
    });
    assert_eq!(found, Some((503, "damaged".into())));
    assert_eq!(server.get("/livez").status, 200);
    drop(server);

    // Where another bundle answers, it goes on.
    place.link(2);
    let server = place.serve(&["--mmap"]);
    place.link(1);
    let reply = server.post("/v1/reload", &Value::Null);
    assert_eq!(reply.problem(), (409, "bundle-refused".into()));
    assert_says(&reply.body, &["vectors.safetensors"]);
    assert_eq!(server.slates(json!({"user": 1}))["bundle"], place.digests[1]);
    assert_eq!(server.get("/readyz").status, 200);
}

#[test]
fn bundles_change_under_load_without_an_error_or_a_mixed_answer() {
    let place = Place::new();
    let server = place.serve(&[]);
    let alone = [1, 2].map(|bundle| opened(&place.path(&format!("bundle-{bundle}"))));
    let expected = |user: u32| {
        let who = Who::User { id: user.to_string(), newer: Vec::new() };
        let slate = |alone: &Recommender| {
            wanted(&alone.recommend(&[who.clone().into()], &Options::default()).unwrap()[0])
        };
        [slate(&alone[0]), slate(&alone[1])]
    };
    let expected: Vec<_> = (1..20).map(expected).collect();
    assert!(expected.iter().any(|[one, two]| one != two), "the bundles do not differ");
    let done = AtomicBool::new(false);
    let asked: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut asked = 0;
                    while !done.load(Ordering::Relaxed) {
                        for (user, expected) in (1..20).zip(&expected) {
                            let answer = server.slates(json!({"user": user}));
                            let bundle = place.digests.iter().position(|d| answer["bundle"] == **d);
                            assert_eq!(shown(&answer), expected[bundle.unwrap()], "a mixed answer");
                            asked += 1;
                        }
                    }
                    asked
                })
            })
            .collect();
        for reload in 0..10 {
            let bundle = 2 - reload % 2;
            place.link(bundle);
            let reply = server.post("/v1/reload", &Value::Null);
            assert_eq!(reply.status, 200, "{}", reply.body);
            assert_eq!(reply.json()["digest"], place.digests[bundle - 1]);
        }
        done.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert!(asked > 0);

    // A damaged bundle is refused with the file's name, and the old one goes on.
    let items = place.path("bundle-2").join("items.parquet");
    let whole = fs_err::read(&items).unwrap();
    fs_err::write(&items, &whole[..whole.len() - 1]).unwrap();
    place.link(2);
    let reply = server.post("/v1/reload", &Value::Null);
    assert_eq!(reply.problem(), (409, "bundle-refused".into()));
    assert_says(&reply.body, &["items.parquet"]);
    assert_eq!(server.slates(json!({"user": 1}))["bundle"], place.digests[0]);
    fs_err::write(&items, &whole).unwrap();
    // A signal does the same as the route.
    server.signal("-HUP");
    let changed = || server.slates(json!({"user": 1}))["bundle"] == place.digests[1];
    assert!((0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        changed()
    }));

    let watching = place.serve(&["--watch"]);
    place.link(1);
    let answers_now = |digest: &String| {
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            watching.slates(json!({"user": 1}))["bundle"] == **digest
        })
    };
    assert!(answers_now(&place.digests[0]));
    // What stood in a bundle's way passes without a change of its folder's time.
    fs_err::rename(&items, place.path("aside")).unwrap();
    place.link(2);
    let refused = || watching.get("/metrics").body.contains("outcome=\"refused\"} 1");
    assert!((0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        refused()
    }));
    fs_err::rename(place.path("aside"), &items).unwrap();
    assert!(answers_now(&place.digests[1]));
}

#[test]
fn a_reload_refuses_a_policy_that_cannot_explore_as_asked() {
    let place = Place::new();
    let policy = Policy::open(&place.path("run-2"), Which::Last, Some("flex")).unwrap();
    let mut bundle = policy.bundle(true).unwrap();
    // As a method without noise leaves it.
    bundle.sigma = None;
    bundle.write(&place.path("bundle-3"), VectorScalar::F32, false).unwrap();
    let exploring = place.serve(&["--log", &place.log(), "--explore-share", "0.5"]);
    let plain = place.serve(&[]);
    place.link(3);
    let reply = exploring.post("/v1/reload", &Value::Null);
    assert_eq!(reply.problem(), (409, "bundle-refused".into()));
    assert_says(&reply.body, &["explore-share", "does not draw by Gaussian noise"]);
    assert_eq!(exploring.slates(json!({"user": 1}))["bundle"], place.digests[0]);
    assert_eq!(plain.post("/v1/reload", &Value::Null).status, 200);
}

#[test]
fn what_is_explored_is_logged_so_that_it_can_be_learned_from() {
    let place = Place::new();
    let log = place.log();
    let mut server = place.serve(&["--log", &log]);
    let explored = server.slates(json!({"user": "7", "explore": true, "exclude": ["1"]}));
    assert_eq!(explored["explored"], true);
    let plain = json!({"items": ["1", "2"], "k": 3, "deny": ["9"], "max_per_group": 2});
    let plain = server.slates(plain);
    let id = explored["request_id"].as_str().unwrap();
    let feedback = |id: &str, event: &str, value: f64| {
        let body = json!({"request_id": id, "position": 1, "value": value, "event_id": event});
        server.post("/v1/feedback", &body)
    };
    assert_eq!(feedback(id, "one", 1.0).status, 204);
    assert_eq!(feedback(id, "one", 1.0).status, 204);
    assert_eq!(feedback(id, "two", 0.5).status, 204);
    // Another server's id, and one that was made up.
    let other = place.serve(&["--log", place.path("other").to_str().unwrap()]);
    let foreign = other.slates(json!({"user": 1}));
    let foreign = foreign["request_id"].as_str().unwrap();
    let forged = format!("{}{}", &id[..id.len() - 1], if id.ends_with('0') { '1' } else { '0' });
    for id in [foreign, &forged, "", "zz"] {
        assert_eq!(feedback(id, "three", 1.0).problem(), (422, "request-id".into()), "{id}");
    }
    let body = json!({"request_id": id, "position": 1_000, "value": 1.0, "event_id": "e"});
    assert_eq!(server.post("/v1/feedback", &body).problem(), (422, "position".into()));
    server.signal("-TERM");
    assert_eq!(server.end(), Some(0));

    let Log { exposures, feedback: outcomes, .. } = Log::read(&[place.path("log")]).unwrap();
    assert_eq!(exposures.len(), 2);
    let of = |id: &Value| exposures.iter().find(|row| row.request == id.as_str().unwrap()).unwrap();
    let row = of(&explored["request_id"]);
    assert!(row.exploring && row.sigma > 0.0 && row.z != row.h);
    assert_eq!(row.who, Who::User { id: "7".into(), newer: Vec::new() });
    assert_eq!(
        (row.bundle.as_str(), row.exclude.as_slice()),
        (&*place.digests[0], &["1".into()][..])
    );
    let items = |answer: &Value| shown(answer).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(row.slate, items(&explored));
    // The slate is a function of z: the noise is (z − h) / σ, about one in each direction.
    let noise: f32 = row.z.iter().zip(&row.h).map(|(z, h)| ((z - h) / row.sigma).powi(2)).sum();
    let dim = row.h.len() as f32;
    assert!((noise / dim - 1.0).abs() < 6.0 * (2.0 / dim).sqrt(), "{noise} in {dim}");
    let row = of(&plain["request_id"]);
    assert!(!row.exploring && row.sigma == 0.0 && row.z == row.h);
    assert_eq!(row.who, Who::Items(vec!["1".into(), "2".into()]));
    assert_eq!((row.deny.as_slice(), row.k), (&["9".to_owned()][..], 3));
    assert_eq!(row.filters, ["max_per_group=2"]);
    let mut outcomes: Vec<(&str, f64)> =
        outcomes.iter().map(|row| (row.event.as_str(), row.value)).collect();
    outcomes.sort_by(|one, other| one.0.cmp(other.0));
    assert_eq!(outcomes, [("one", 1.0), ("two", 0.5)]);

    // A share of all requests explores; `false` never does.
    let server = place.serve(&["--log", &log, "--explore-share", "0.5"]);
    // The log's folder keeps the key, so that feedback comes after the next start too.
    let late = json!({"request_id": id, "position": 0, "value": 1.0, "event_id": "late"});
    assert_eq!(server.post("/v1/feedback", &late).status, 204);
    let drawn = (0..100).filter(|_| server.slates(json!({"user": 3}))["explored"] == true).count();
    assert!((20..=80).contains(&drawn), "{drawn} of 100 at a share of a half");
    assert!(
        (0..20).all(|_| server.slates(json!({"user": 3, "explore": false}))["explored"] == false)
    );
    let check: Value =
        serde_json::from_str(&stdout(slate().args(["--json", "log", "check", &log]))).unwrap();
    assert_eq!(check["exposures"], 122, "{check}");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let place = Place::new();
    let log = place.log();
    let mut sent = Vec::new();
    for round in 0..3 {
        let mut server = place.serve(&["--log", &log]);
        let address = &server;
        let acknowledged: Vec<String> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|client| {
                    scope.spawn(move || {
                        let id = address.slates(json!({"user": 1}))["request_id"].clone();
                        let mut acknowledged = Vec::new();
                        for event in 0.. {
                            let event = format!("{round}-{client}-{event}");
                            let body = json!({
                                "request_id": id, "position": 0, "value": 1.0, "event_id": event,
                            });
                            let Ok(mut stream) = TcpStream::connect(&address.address) else {
                                break;
                            };
                            let body = body.to_string();
                            let head = format!(
                                "POST /v1/feedback HTTP/1.1\r\nhost: {}\r\ncontent-type: \
                                 application/json\r\ncontent-length: {}\r\nconnection: \
                                 close\r\n\r\n{body}",
                                address.address,
                                body.len()
                            );
                            if stream.write_all(head.as_bytes()).is_err() {
                                break;
                            }
                            if Reply::read(stream).status != 204 {
                                break;
                            }
                            acknowledged.push(event);
                        }
                        acknowledged
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(400));
            address.signal("-KILL");
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        server.end();
        assert!(!acknowledged.is_empty());
        sent.extend(acknowledged);
    }
    let stored = Log::read(&[place.path("log")]).unwrap().feedback;
    let stored: std::collections::HashSet<&str> =
        stored.iter().map(|row| row.event.as_str()).collect();
    let lost: Vec<_> = sent.iter().filter(|event| !stored.contains(event.as_str())).collect();
    assert!(lost.is_empty(), "{} of {} lost: {lost:?}", lost.len(), sent.len());
}

#[test]
fn a_full_disk_stops_the_log_and_not_the_slates() {
    let place = Place::new();
    let mut command = assert_cmd::Command::from_std(process());
    let (bundle, log) = (place.path("bundle"), place.log());
    let args = ["--listen", "127.0.0.1:0", "--device", "flex", "--log", &log];
    command.arg("serve").arg(bundle).args(args).args(["--explore-share", "1"]);
    let serve = |kib: u32| {
        let full = limited(kib, &command);
        let mut process = std::process::Command::new(full.get_program());
        process.args(full.get_args()).env_remove("SLATE_LOG").env("NO_COLOR", "1");
        Server::spawn(process)
    };
    let server = serve(64);
    let first = server.slates(json!({"user": 1}));
    assert_eq!(first["explored"], true);
    let id = first["request_id"].clone();
    // The decision is shown to those who were drawn where what is drawn cannot be logged.
    assert!((0..2000).any(|_| server.slates(json!({"user": 1}))["explored"] == false));
    let feedback = |event: usize| {
        let event = format!("{event:0>100}");
        let body = json!({"request_id": id, "position": 0, "value": 1.0, "event_id": event});
        server.post("/v1/feedback", &body)
    };
    let refused = (0..2000).map(feedback).find(|reply| reply.status != 204);
    let refused = refused.expect("the log grew beyond the limit");
    assert_eq!(refused.problem(), (503, "log".into()));
    assert_says(&refused.head, &["retry-after"]);
    assert_eq!(server.get("/readyz").status, 200);
    assert_says(&server.get("/metrics").body, &["slate_log_healthy 0"]);
    assert_eq!(server.get("/livez").status, 200);
    let explore = json!({"user": 1, "explore": true});
    assert_eq!(server.post("/v1/slates", &explore).problem().0, 503);
    assert_eq!(server.slates(json!({"user": 1}))["explored"], false);
    drop(server);

    // A server starts on a full disk, and what the one before logged is there.
    let rows = Log::read(&[place.path("log")]).unwrap().exposures.len();
    let server = serve(0);
    assert_eq!(server.slates(json!({"user": 1}))["explored"], false);
    assert_eq!(server.get("/readyz").status, 200);
    assert_says(&server.get("/metrics").body, &["slate_log_healthy 0"]);
    assert_eq!(server.post("/v1/slates", &explore).problem().0, 503);
    assert_eq!(Log::read(&[place.path("log")]).unwrap().exposures.len(), rows);
}

#[test]
fn a_demo_that_cannot_be_served_is_not_trained() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("demo");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let served = format!("`slate serve {} --listen 0.0.0.0:8080`", out.join("bundle").display());
    let listening = format!("listening on {taken}");
    for (listen, says) in [("0.0.0.0:8080", served), (&taken, listening)] {
        let mut demo = slate();
        demo.args(["demo", "--serve", "--listen", listen, "--out"]).arg(&out);
        assert_says(&refused(&mut demo), &[&says]);
        assert!(!out.exists());
    }
}
