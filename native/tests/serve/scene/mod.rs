//! A client that can misbehave, servers to ask, and a model that computes as slowly as a test wants. Tests
//! nothing itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

mod paced;
mod program;

pub(crate) use paced::{Fault, Gate, Plan, Scene, app};
pub(crate) use program::{Program, Unheard};

/// Longest time a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A file of the golden models.
pub(crate) fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden")
        .join(name)
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Lower-case names.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(key, _)| key == name);
        found.next().map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The error in OpenAI's shape, which it must be.
    pub(crate) fn error(&self) -> Value {
        let whole = self.json();
        let error = &whole["error"];
        assert!(error["message"].as_str().unwrap().len() > 10, "{whole}");
        assert!(error["type"].is_string(), "{whole}");
        for field in ["param", "code"] {
            let value = error.get(field).unwrap();
            assert!(value.is_null() || value.is_string(), "{whole}");
        }
        error.clone()
    }

    /// The kind of an error in Anthropic's shape, which it must be.
    pub(crate) fn message_error(&self) -> String {
        let whole = self.json();
        assert_eq!(whole["type"], "error", "{whole}");
        let error = &whole["error"];
        assert!(error["message"].as_str().unwrap().len() > 10, "{whole}");
        assert_eq!(error.as_object().unwrap().len(), 2, "{whole}");
        for name in ["request-id", "x-request-id"] {
            assert_eq!(whole["request_id"].as_str(), self.header(name), "{whole}");
        }
        error["type"].as_str().unwrap().to_owned()
    }

    /// The events of a stream, which must be whole.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lines = self.body.lines().filter_map(|l| l.strip_prefix("data: "));
        let mut lines: Vec<_> = lines.collect();
        assert_eq!(lines.pop(), Some("[DONE]"), "{}", self.body);
        lines
            .iter()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect()
    }
}

/// Where a server is heard, and the key that opens it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client(pub(crate) SocketAddr, pub(crate) Option<&'static str>);

impl Client {
    /// The same with a key.
    pub(crate) fn with_key(self, key: &'static str) -> Self {
        Self(self.0, Some(key))
    }

    pub(crate) fn connect(self) -> TcpStream {
        let stream = TcpStream::connect(self.0).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends these bytes, and reads what comes until the server closes.
    pub(crate) fn raw(self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect();
        // A server may answer before it has read all.
        let _ = stream.write_all(bytes);
        reply(stream)
    }

    pub(crate) fn send(self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        self.raw(request(method, path, headers, body).as_bytes())
    }

    pub(crate) fn get(self, path: &str) -> Reply {
        self.send("GET", path, &self.key(), "")
    }

    pub(crate) fn post(self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &(self.key() + JSON), &body.to_string())
    }

    fn key(self) -> String {
        let header = |key| format!("Authorization: Bearer {key}\r\n");
        self.1.map(header).unwrap_or_default()
    }

    /// A post that must succeed.
    pub(crate) fn ask(self, path: &str, body: &Value) -> Value {
        let reply = self.post(path, body);
        assert_eq!(reply.status, 200, "{path} {body}: {reply:?}");
        reply.json()
    }

    /// Begins a request and leaves the rest to the caller.
    pub(crate) fn begin(self, path: &str, body: &Value) -> BufReader<TcpStream> {
        let mut stream = self.connect();
        let bytes = request("POST", path, &(self.key() + JSON), &body.to_string());
        stream.write_all(bytes.as_bytes()).unwrap();
        BufReader::new(stream)
    }

    /// The one number of a metric.
    pub(crate) fn metric(self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let is_it = |line: &&str| line.split(['{', ' ']).next() == Some(name);
        let line = text.lines().find(is_it);
        let line = line.unwrap_or_else(|| panic!("{name} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Waits until nothing is computed, with all blocks free.
    pub(crate) fn wait_until_free(self) {
        let is_free = || {
            let load = self.get("/get_load").json()[0].clone();
            load["num_reqs"] == 0 && load["num_running_reqs"] == 0 && load["kv_cache_usage"] == 0.0
        };
        wait(is_free);
    }
}

pub(crate) const JSON: &str = "Content-Type: application/json\r\n";

fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: \
         {length}\r\n\r\n{body}"
    )
}

/// Reads a whole reply.
pub(crate) fn reply(stream: impl Read) -> Reply {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status: {line:?}"));
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let mut body = Vec::new();
    let is_chunked = headers.iter().any(|(name, _)| name == "transfer-encoding");
    if is_chunked {
        while let Some(chunk) = chunk(&mut reader) {
            body.extend(chunk);
        }
    } else {
        // The server may close before all was sent to it.
        let _ = reader.read_to_end(&mut body);
    }
    Reply {
        status,
        headers,
        body: String::from_utf8(body).unwrap(),
    }
}

/// The next chunk; `None` at the end, or where the server cut it.
fn chunk(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let length = usize::from_str_radix(line.trim(), 16).ok()?;
    let mut bytes = vec![0; length + 2];
    reader.read_exact(&mut bytes).ok()?;
    bytes.truncate(length);
    (length > 0).then_some(bytes)
}

/// Reads until a line has this in it.
pub(crate) fn read_until(reader: &mut impl BufRead, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        let length = reader.read_line(&mut line).unwrap();
        assert!(length > 0, "the server said no {text:?}");
    }
}

/// Waits until something is so.
pub(crate) fn wait(is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited for nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A completion of so many tokens that does not end before.
pub(crate) fn long(max_tokens: usize) -> Value {
    json!({"prompt": [1, 2, 3], "max_tokens": max_tokens, "ignore_eos": true, "temperature": 0})
}

/// So much to answer that the tiny model, which is quick, does not end in a test's time.
pub(crate) fn endless() -> Value {
    let mut body = long(500);
    body["prompt"] = json!(vec![[1, 2, 3]; 60]);
    body["n"] = json!(16);
    body["stream"] = json!(true);
    body
}
