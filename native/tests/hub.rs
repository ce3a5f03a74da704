//! Models of the hub, from a hub of our own on this machine: what comes, what is found again
//! without asking, what a refusal, a cut and a wrong byte do. No test asks the network.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};
use twoclock::download::hexadecimal;

const TOKEN: &str = "hf_secretToken";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the hub has and does, and what it saw.
#[derive(Default)]
struct Script {
    files: BTreeMap<String, Vec<u8>>,
    /// Names it lists besides.
    listed: Vec<String>,
    commit: Option<String>,
    private: bool,
    /// Bytes after which each of the next answers with a file's content breaks off.
    cuts: Vec<usize>,
    /// A file whose content is not what its hash says.
    wrong: Option<String>,
    /// Hash it tells, for any file.
    etag: Option<String>,
    /// Of every request: path, and whether the token came with it.
    seen: Vec<(String, bool)>,
}

struct Hub {
    port: u16,
    script: Arc<Mutex<Script>>,
    home: tempfile::TempDir,
}

impl Hub {
    fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = Arc::new(Mutex::new(script));
        let shared = script.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that hangs up is part of these tests.
                let _ = answer(stream.unwrap(), port, &shared);
            }
        });
        let home = tempfile::tempdir().unwrap();
        Self { port, script, home }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_twoclock"));
        command
            .env_remove("HF_HUB_CACHE")
            .env_remove("HF_HUB_OFFLINE")
            .env_remove("HF_TOKEN")
            .env_remove("HF_TOKEN_PATH")
            .env("TWOCLOCK_HOME", self.home.path().join("twoclock"))
            .env("HF_HOME", self.home.path().join("hf"))
            .env("HF_ENDPOINT", format!("http://127.0.0.1:{}", self.port))
            .stdin(Stdio::null())
            .args(arguments);
        command
    }

    /// Paths asked for since the last time.
    fn asked(&self) -> Vec<String> {
        let seen = std::mem::take(&mut self.script.lock().unwrap().seen);
        seen.into_iter().map(|(path, _)| path).collect()
    }

    fn cache(&self) -> PathBuf {
        self.home.path().join("hf/hub/models--org--tiny")
    }
}

fn answer(stream: TcpStream, port: u16, script: &Mutex<Script>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut words = first.split(' ');
    let only_head = words.next() == Some("HEAD");
    let path = words.next().unwrap_or_default().to_owned();
    let (mut range, mut token) = (0, false);
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        token |= line.contains(&TOKEN.to_ascii_lowercase());
        if let Some(bytes) = line.strip_prefix("range: bytes=") {
            range = bytes.trim_end_matches('-').parse().unwrap();
        }
    }
    let mut script = script.lock().unwrap();
    script.seen.push((path.clone(), token));
    let mut stream = &stream;
    let end = "connection: close\r\n\r\n";
    if script.private && !token && !path.starts_with("/cdn/") {
        return write!(stream, "HTTP/1.1 401 no\r\ncontent-length: 0\r\n{end}");
    }
    let commit = script.commit.clone().unwrap_or_else(|| COMMIT.into());
    if path == "/api/models/org/tiny/revision/main" {
        let siblings: Vec<_> = script.files.keys().chain(&script.listed).collect();
        let body = serde_json::json!({
            "sha": commit,
            "siblings": siblings.iter().map(|f| serde_json::json!({"rfilename": f})).collect::<Vec<_>>(),
        })
        .to_string();
        let length = body.len();
        return write!(
            stream,
            "HTTP/1.1 200 ok\r\ncontent-length: {length}\r\n{end}{body}"
        );
    }
    let prefix = format!("/org/tiny/resolve/{commit}/");
    let resolved = path.strip_prefix(&*prefix);
    let name = resolved
        .or_else(|| path.strip_prefix("/cdn/"))
        .unwrap_or_default();
    let Some(content) = script.files.get(name).cloned() else {
        return write!(stream, "HTTP/1.1 404 no\r\ncontent-length: 0\r\n{end}");
    };
    let hash = hexadecimal(&Sha256::digest(&content));
    let etag = script.etag.clone().unwrap_or(hash);
    if resolved.is_some() && name.ends_with(".gguf") {
        // Large files lie on another host, which must not see the token.
        return write!(
            stream,
            "HTTP/1.1 302 there\r\nlocation: http://localhost:{port}/cdn/{name}\r\nx-repo-commit: {commit}\r\nx-linked-etag: \"{etag}\"\r\nx-linked-size: {}\r\ncontent-length: 0\r\n{end}",
            content.len()
        );
    }
    let mut body = content.clone();
    if script.wrong.as_deref() == Some(name) {
        body[0] ^= 1;
    }
    let total = body.len();
    let body = &body[range..];
    let cut = if only_head {
        0
    } else if script.cuts.is_empty() {
        body.len()
    } else {
        script.cuts.remove(0).min(body.len())
    };
    let status = if range > 0 {
        format!(
            "206 part\r\ncontent-range: bytes {range}-{}/{total}",
            total - 1
        )
    } else {
        "200 ok".to_owned()
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nx-repo-commit: {commit}\r\netag: \"{etag}\"\r\ncontent-length: {}\r\n{end}",
        body.len()
    )?;
    stream.write_all(&body[..cut])
}

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden")
        .join(path)
}

fn gguf() -> Vec<u8> {
    fs::read(golden("gguf/Q4_0.gguf")).unwrap()
}

fn files(list: &[(&str, Vec<u8>)]) -> Script {
    Script {
        files: list
            .iter()
            .map(|(n, b)| ((*n).to_owned(), b.clone()))
            .collect(),
        ..Script::default()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn path(output: &Output) -> PathBuf {
    assert!(output.status.success(), "{}", said(output));
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end())
}

/// Exit status 1, the token never shown.
fn refused(output: &Output, because: &str) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(because), "{said}");
    assert!(!said.contains(TOKEN), "{said}");
}

#[test]
fn a_folder_comes_once_and_is_found_without_the_network() {
    let folder = golden("models/llama");
    let read = |name: &str| (name.to_owned(), fs::read(folder.join(name)).unwrap());
    let mut script = Script::default();
    for name in [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ] {
        script.files.extend([read(name)]);
    }
    script.files.insert("README.md".into(), b"hello".to_vec());
    script
        .files
        .insert("pytorch_model.bin".into(), b"not needed".to_vec());
    script.listed.push("../../../../escape.safetensors".into());
    let hub = Hub::start(script);
    let model = "hf:org/tiny";
    refused(
        &hub.run(&["inspect", "--offline", "-m", model]),
        "revision main is not there",
    );
    assert!(hub.asked().is_empty());

    let there = path(&hub.run(&["pull", model]));
    assert_eq!(there, hub.cache().join("snapshots").join(COMMIT));
    let mut names: Vec<_> = fs::read_dir(&there)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(
        !hub.asked()
            .iter()
            .any(|p| p.contains("README") || p.contains("bin"))
    );

    let output = hub.run(&["inspect", "-m", model]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(hub.asked(), ["/api/models/org/tiny/revision/main"]);
    for offline in [&["--offline"][..], &[]] {
        let mut command = hub.command(&["inspect", "-m", model]);
        command
            .args(offline)
            .env("HF_HUB_OFFLINE", if offline.is_empty() { "1" } else { "" });
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        assert!(hub.asked().is_empty());
    }
    // A hub that is down is no reason not to use what is here, and is said.
    let output = hub
        .command(&["inspect", "-m", model])
        .env("HF_ENDPOINT", "http://127.0.0.1:1")
        .output()
        .unwrap();
    assert!(output.status.success() && said(&output).contains("connection refused"));

    // Another commit with the same content: nothing is fetched twice.
    hub.script.lock().unwrap().commit = Some("f".repeat(40));
    let there = path(&hub.run(&["pull", model]));
    assert!(there.ends_with("f".repeat(40)) && there.join("config.json").is_file());
    let fetched = hub.asked();
    assert_eq!(fetched.len(), 1 + 4, "one look at each file: {fetched:?}");
}

#[test]
fn a_private_file_needs_the_token_and_no_other_host_sees_it() {
    let hub = Hub::start(Script {
        private: true,
        ..files(&[("tiny-Q4_0.gguf", gguf()), ("tiny-F32.gguf", vec![0; 64])])
    });
    let model = "hf:org/tiny:Q4_0";
    refused(&hub.run(&["inspect", "-m", model]), "HF_TOKEN");
    let mut command = hub.command(&["inspect", "-m", model]);
    let output = command.env("HF_TOKEN", TOKEN).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(!said(&output).contains(TOKEN));
    let seen = &hub.script.lock().unwrap().seen;
    let elsewhere: Vec<_> = seen
        .iter()
        .filter(|(p, _)| p.starts_with("/cdn/"))
        .collect();
    assert!(
        !elsewhere.is_empty() && elsewhere.iter().all(|(_, token)| !token),
        "{seen:?}"
    );
    drop(command);
}

#[test]
fn a_choice_is_asked_for_and_what_is_missing_is_named() {
    let hub = Hub::start(files(&[
        ("a-Q4_0.gguf", gguf()),
        ("a-Q8_0.gguf", vec![0; 64]),
    ]));
    refused(
        &hub.run(&["pull", "hf:org/tiny"]),
        "a-Q4_0.gguf, a-Q8_0.gguf",
    );
    refused(&hub.run(&["pull", "hf:org/tiny:Q2_K"]), "no model \"Q2_K\"");
    refused(
        &hub.run(&["pull", "hf:org/none"]),
        "has no repository hf:org/none",
    );
    refused(&hub.run(&["pull", "hf:org"]), "write hf:ORG/REPO");
    let mut command = hub.command(&["pull", "hf:org/tiny:Q4_0"]);
    refused(
        &command.env("HF_ENDPOINT", "nonsense").output().unwrap(),
        "HF_ENDPOINT",
    );
}

#[test]
fn a_cut_goes_on_and_a_wrong_byte_leaves_nothing() {
    let hub = Hub::start(Script {
        cuts: vec![1000, 5000],
        ..files(&[("tiny.gguf", gguf())])
    });
    let there = path(&hub.run(&["pull", "hf:org/tiny"]));
    assert_eq!(fs::read(there).unwrap(), gguf());

    let hub = Hub::start(files(&[("empty.gguf", Vec::new())]));
    let there = path(&hub.run(&["pull", "hf:org/tiny"]));
    assert!(fs::read(there).unwrap().is_empty());

    let hub = Hub::start(Script {
        wrong: Some("tiny.gguf".into()),
        ..files(&[("tiny.gguf", gguf())])
    });
    refused(&hub.run(&["pull", "hf:org/tiny"]), "has SHA-256");
    refused(
        &hub.run(&["pull", "--offline", "hf:org/tiny"]),
        "is not there",
    );
    hub.script.lock().unwrap().wrong = None;
    path(&hub.run(&["pull", "hf:org/tiny"]));

    let hub = Hub::start(Script {
        etag: Some("../../escape".into()),
        ..files(&[("tiny.gguf", gguf())])
    });
    refused(&hub.run(&["pull", "hf:org/tiny"]), "its hash is no name");
}
