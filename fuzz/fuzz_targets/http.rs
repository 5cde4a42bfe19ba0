//! Requests to a server in this process. The first byte says where the rest goes; with the last of them it
//! is the whole request. `REQUEST` in a body becomes an id that was handed out.
#![no_main]

use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use fast_slate::log::Key;
use fast_slate::serving::{Access, Limits, ServeOptions, serve};
use fast_slate_fuzz::{copy_of, folder};
use libfuzzer_sys::fuzz_target;

static SERVER: LazyLock<SocketAddr> = LazyLock::new(|| {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let (bundle, log) = (copy_of("bundle"), folder());
        let options = ServeOptions {
            bundle: bundle.path().to_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            map: false,
            shards: None,
            device: None,
            log: Some(log.path().to_owned()),
            explore_share: 0.1,
            access: Access { read: None, admin: None, hosts: Vec::new(), cors_origin: None },
            insecure: false,
            watch: false,
            limits: Limits::default(),
            key: Key::random(),
        };
        serve(options, |address| sender.send(address).unwrap()).unwrap();
    });
    receiver.recv().unwrap()
});

thread_local! {
    static CONNECTION: RefCell<Option<TcpStream>> = const { RefCell::new(None) };
    static REQUEST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect(*SERVER).expect("the server answers");
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

/// Reads one answer; returns its status and body, or nothing if the connection ended.
fn answer(stream: &mut TcpStream) -> Option<(u16, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 1 << 14];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let status = head.get(9..12)?.parse().ok()?;
            let length: usize =
                head.split_once("content-length: ")?.1.lines().next()?.parse().ok()?;
            if bytes.len() >= end + 4 + length {
                return Some((status, bytes[end + 4..].to_vec()));
            }
        }
        match stream.read(&mut piece) {
            Ok(0) => return None,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
            Err(error) => panic!("no answer: {error}"),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let route = match which % 6 {
        0 | 1 => "POST /v1/slates",
        2 => "POST /v1/feedback",
        3 => "POST /v1/search",
        4 => "GET /v1/items?",
        _ => {
            let mut stream = connect();
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(Shutdown::Write);
            let mut all = Vec::new();
            let _ = stream.read_to_end(&mut all);
            return;
        }
    };
    let mut request = route.as_bytes().to_vec();
    let mut body = Vec::new();
    if which % 6 == 4 {
        request.extend(bytes.iter().filter(|byte| byte.is_ascii_graphic()));
    } else {
        body = bytes.to_vec();
        if let Some(at) = body.windows(7).position(|word| word == b"REQUEST") {
            let known = REQUEST.with_borrow(Clone::clone);
            body.splice(at..at + 7, known);
        }
    }
    request.extend(
        format!(
            " HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: \
             {}\r\n\r\n",
            body.len()
        )
        .bytes(),
    );
    request.extend(body);
    CONNECTION.with_borrow_mut(|held| {
        let mut stream = held.take().unwrap_or_else(connect);
        if stream.write_all(&request).is_err() {
            return;
        }
        if let Some((status, body)) = answer(&mut stream) {
            assert_ne!(status, 500, "{}", String::from_utf8_lossy(&body));
            let text = String::from_utf8_lossy(&body);
            if let Some((_, rest)) = text.split_once("\"request_id\":\"")
                && let Some((id, _)) = rest.split_once('"')
            {
                REQUEST.with_borrow_mut(|known| *known = id.as_bytes().to_vec());
            }
            *held = Some(stream);
        }
    });
});
