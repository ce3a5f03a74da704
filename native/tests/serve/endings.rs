//! How connections end: whoever is answered before all was sent reads the answer, and whoever sends nothing more does
//! not keep the server.

use std::io::{Read, Write};

use crate::scene::{Client, JSON, Plan, Scene, reply};

/// More than the host keeps for who does not read.
const MUCH: usize = 12 << 20;

fn head(path: &str, headers: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{JSON}{headers}\r\n")
}

/// Sends all of it before anything is read.
fn in_one_go(client: Client, bytes: &[u8]) -> crate::scene::Reply {
    let mut stream = client.connect();
    stream.write_all(bytes).unwrap();
    reply(stream)
}

#[test]
fn who_sends_all_before_it_reads_reads_the_answer() {
    let scene = Scene::start(Plan::default());
    let client = scene.client;
    let length = format!("Content-Length: {MUCH}\r\n");
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let chunks = chunk.repeat(MUCH / 0x10000) + "0\r\n\r\n";
    let body = " ".repeat(MUCH);
    for (path, headers, body, status) in [
        ("/v1/completions", length.clone(), &body, 413),
        (
            "/v1/completions",
            "Transfer-Encoding: chunked\r\n".to_owned(),
            &chunks,
            413,
        ),
        (
            "/v1/completions",
            format!("Content-Encoding: gzip\r\n{length}"),
            &body,
            415,
        ),
        ("/nowhere", length.clone(), &body, 404),
    ] {
        let answer = in_one_go(client, (head(path, &headers) + body).as_bytes());
        assert_eq!(answer.status, status, "{answer:?}");
        answer.error();
    }
    // A head of which not all is read, too.
    let many = format!("X: {}\r\n", "y".repeat(MUCH));
    let answer = in_one_go(client, head("/v1/completions", &many).as_bytes());
    assert_eq!(answer.status, 431);
    // A body that is short enough leaves the connection as it was.
    let mut stream = client.connect();
    for _ in 0..2 {
        let request = head("/nowhere", "Content-Length: 2\r\n") + "{}";
        stream.write_all(request.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 404");
        let mut rest = Vec::new();
        while !rest.ends_with(b"}}") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            rest.push(byte[0]);
        }
    }
}

/// It is not read for ever either.
#[test]
fn who_never_ends_is_cut() {
    let scene = Scene::start(Plan::default());
    let mut stream = scene.client.connect();
    let head = head("/v1/completions", "Transfer-Encoding: chunked\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    // However fast it is: it has seconds at most.
    while stream.write_all(chunk.as_bytes()).is_ok() {}
}
