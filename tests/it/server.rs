//! `slate serve` in a process of its own, and what it answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{assert_says, process};

/// A server in a process of its own, killed when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(bundle: &Path, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = process();
        command.arg("serve").arg(bundle).args(["--listen", "127.0.0.1:0", "--device", "flex"]);
        command.args(args).envs(variables.iter().copied());
        Self::spawn(command)
    }

    pub(crate) fn spawn(mut command: std::process::Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            said += &format!("{line}\n");
            line.split_once("on http://").map(|(_, address)| address.trim().to_owned())
        });
        let address = address.unwrap_or_else(|| panic!("no address in:\n{said}"));
        // A full pipe would stop the server.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends a request with `headers` and reads the answer.
    pub(crate) fn ask(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut stream = self.connect();
        let host = if headers.iter().any(|(name, _)| *name == "host") {
            String::new()
        } else {
            format!("host: {}\r\n", self.address)
        };
        let headers: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = headers.concat();
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\n{host}{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses a body need not read it.
        let _ = stream.write_all(body.as_bytes());
        Reply::read(stream)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask(&format!("GET {path}"), &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask(&format!("POST {path}"), &[JSON], &body.to_string())
    }

    #[allow(clippy::needless_pass_by_value, reason = "made where it is passed")]
    pub(crate) fn slates(&self, body: Value) -> Value {
        let reply = self.post("/v1/slates", &body);
        assert_eq!(reply.status, 200, "{body}: {}", reply.body);
        reply.json()
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Waits for the end; the exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn read(mut stream: TcpStream) -> Self {
        let mut text = Vec::new();
        // What was said before a reset counts.
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Status and stable code of a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_says(&self.head, &["content-type: application/problem+json"]);
        let body = self.json();
        assert_eq!(body["status"], self.status, "{body}");
        assert!(body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{body}");
        (self.status, body["code"].as_str().unwrap().to_owned())
    }
}
