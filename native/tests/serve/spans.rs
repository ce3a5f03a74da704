//! Spans of requests, read by a small collector: what they say, whose trace they are in, and that a collector that
//! does not answer keeps nobody waiting.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::answers::{CHAT, TEXT, chat};
use crate::scene::{JSON, PATIENCE, Program, long, read_until};

/// A value of a field of protobuf's wire format.
#[derive(Clone, Copy, Debug)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

/// The fields of a message, by their numbers.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let length = match tag & 7 {
            0 => 0,
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)).unwrap(),
            5 => 4,
            other => panic!("wire type {other}"),
        };
        let (inner, rest) = bytes.split_at(length);
        bytes = rest;
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => Field::Number(u64::from_le_bytes(inner.try_into().unwrap())),
            _ => Field::Bytes(inner),
        };
        found.push((tag >> 3, field));
    }
    found
}

/// The messages, texts and bytes of this field.
fn all(bytes: &[u8], number: u64) -> Vec<&[u8]> {
    let of = |(n, field)| match field {
        Field::Bytes(bytes) if n == number => Some(bytes),
        _ => None,
    };
    fields(bytes).into_iter().filter_map(of).collect()
}

fn one(bytes: &[u8], number: u64) -> &[u8] {
    all(bytes, number).first().copied().unwrap_or_default()
}

fn number(bytes: &[u8], number: u64) -> u64 {
    let of = |(n, field)| match field {
        Field::Number(value) if n == number => Some(value),
        _ => None,
    };
    fields(bytes).into_iter().find_map(of).unwrap_or(0)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A value of an attribute, as a text.
fn value(bytes: &[u8]) -> String {
    let (number, field) = fields(bytes)[0];
    match (number, field) {
        (1, Field::Bytes(bytes)) => text(bytes),
        (3, Field::Number(number)) => number.cast_signed().to_string(),
        (4, Field::Number(bits)) => f64::from_bits(bits).to_string(),
        (5, Field::Bytes(list)) => {
            let values = all(list, 1).into_iter().map(value);
            values.collect::<Vec<_>>().join(",")
        }
        other => panic!("{other:?}"),
    }
}

fn attributes(pairs: &[&[u8]]) -> BTreeMap<String, String> {
    let pair = |pair: &&[u8]| (text(one(pair, 1)), value(one(pair, 2)));
    pairs.iter().map(pair).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Debug)]
struct Span {
    service: String,
    name: String,
    trace: String,
    parent: String,
    kind: u64,
    seconds: f64,
    status: u64,
    attributes: BTreeMap<String, String>,
}

/// The spans in the body of an export.
fn spans(body: &[u8]) -> Vec<Span> {
    let mut found = Vec::new();
    for of_resource in all(body, 1) {
        let resource = attributes(&all(one(of_resource, 1), 1));
        for span in all(of_resource, 2).into_iter().flat_map(|s| all(s, 2)) {
            found.push(Span {
                service: resource["service.name"].clone(),
                name: text(one(span, 5)),
                trace: hex(one(span, 1)),
                parent: hex(one(span, 4)),
                kind: number(span, 6),
                seconds: (number(span, 8) - number(span, 7)) as f64 / 1e9,
                status: number(one(span, 15), 3),
                attributes: attributes(&all(span, 9)),
            });
        }
    }
    found
}

/// An export is taken.
const TAKEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Reads one export and gives this answer.
fn take(stream: TcpStream, answer: &str) -> Option<(String, Vec<Span>)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.split("content-length: ").nth(1).unwrap();
    let length = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(answer.as_bytes()).unwrap();
    Some((lower, spans(&body)))
}

/// Where it is heard, and what it gets.
fn collector() -> (String, Receiver<(String, Vec<Span>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sent, got) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            if let Some(export) = take(stream.unwrap(), TAKEN)
                && sent.send(export).is_err()
            {
                return;
            }
        }
    });
    (address, got)
}

#[test]
fn a_request_is_a_span_in_its_own_trace() {
    let (address, got) = collector();
    let environment = "unset http_proxy HTTP_PROXY all_proxy ALL_PROXY; \
        export OTEL_SERVICE_NAME=my-llm OTEL_BSP_SCHEDULE_DELAY=50 OTEL_EXPORTER_OTLP_HEADERS=x-tenant=me";
    let server = Program::start_after(environment, &["--otlp-endpoint", &address]);
    let client = server.client;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let joined =
        format!("{JSON}traceparent: 00-{trace}-b7ad6b7169203331-01\r\nx-request-id: mine\r\n");
    let whole = chat(json!({"max_tokens": 5, "ignore_eos": true, "temperature": 0.5}));
    let answered = client.send("POST", CHAT, &joined, &whole.to_string());
    assert_eq!(answered.status, 200);
    let answered = answered.json();
    let mut streamed = long(7);
    streamed["stream"] = json!(true);
    streamed["n"] = json!(2);
    assert_eq!(client.post(TEXT, &streamed).status, 200);
    client.ask("/v1/embeddings", &json!({"input": [1, 2, 3]}));
    let refused = chat(json!({"temperature": -1}));
    assert_eq!(client.post(CHAT, &refused).status, 400);
    // Left in the middle.
    let mut left = streamed.clone();
    left["prompt"] = json!(vec![[1, 2, 3]; 60]);
    left["max_tokens"] = json!(500);
    let mut stream = client.begin(TEXT, &left);
    read_until(&mut stream, "data: ");
    drop(stream);
    // What is not to be computed is none.
    client.get("/v1/models");
    assert_eq!(client.get(CHAT).status, 405);
    let mut found: Vec<Span> = Vec::new();
    while found.len() < 5 {
        let (head, spans) = got.recv_timeout(PATIENCE).unwrap();
        assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
        assert!(
            head.contains("content-type: application/x-protobuf"),
            "{head}"
        );
        assert!(head.contains("x-tenant: me"), "{head}");
        found.extend(spans);
    }
    assert!(
        found
            .iter()
            .all(|span| span.service == "my-llm" && span.kind == 2)
    );
    let find = |is_it: &dyn Fn(&Span) -> bool| {
        let mut found = found.iter().filter(|span| is_it(span));
        found.next().unwrap_or_else(|| panic!("{:?}", found))
    };
    let has_error = |span: &Span, kind: &str| {
        span.attributes
            .get("error.type")
            .is_some_and(|found| found == kind)
    };
    let refused = find(&|span| has_error(span, "invalid_request_error"));
    let chat =
        find(&|span| span.name == "chat tiny" && !span.attributes.contains_key("error.type"));
    assert!(
        found
            .iter()
            .all(|span| span.attributes["client.address"] == "127.0.0.1")
    );
    let left = find(&|span| has_error(span, "client_gone"));
    let text = find(&|span| span.name == "text_completion tiny" && !has_error(span, "client_gone"));
    let embeddings = find(&|span| span.name == "embeddings tiny");
    let is = |span: &Span, name: &str, expected: &str| {
        let said = span.attributes.get(name).map(String::as_str);
        assert_eq!(said, Some(expected), "{name} of {span:?}");
    };
    assert_eq!((&*chat.name, &*chat.trace), ("chat tiny", trace));
    assert_eq!(chat.parent, "b7ad6b7169203331");
    is(chat, "gen_ai.operation.name", "chat");
    is(chat, "gen_ai.request.model", "tiny");
    is(chat, "gen_ai.request.temperature", "0.5");
    is(chat, "gen_ai.request.max_tokens", "5");
    is(chat, "gen_ai.usage.output_tokens", "5");
    is(chat, "gen_ai.response.finish_reasons", "length");
    is(chat, "gen_ai.request.id", "mine");
    is(chat, "gen_ai.response.id", answered["id"].as_str().unwrap());
    is(chat, "http.response.status_code", "200");
    let first: f64 = chat.attributes["gen_ai.latency.time_to_first_token"]
        .parse()
        .unwrap();
    assert!(first > 0.0 && first <= chat.seconds, "{chat:?}");
    assert_ne!(chat.status, 2);
    assert_eq!((&*text.name, &*text.parent), ("text_completion tiny", ""));
    assert!(text.trace != trace && text.trace.len() == 32);
    is(text, "gen_ai.usage.input_tokens", "3");
    is(text, "gen_ai.usage.output_tokens", "14");
    is(text, "gen_ai.response.finish_reasons", "length,length");
    is(text, "http.route", TEXT);
    is(embeddings, "gen_ai.usage.input_tokens", "3");
    assert_eq!(refused.name, "chat tiny");
    is(refused, "gen_ai.request.model", "tiny");
    assert!(!refused.attributes.contains_key("gen_ai.response.model"));
    is(refused, "http.response.status_code", "400");
    // A client's fault is none of the server's.
    assert_ne!(refused.status, 2);
    assert_eq!(left.name, "text_completion tiny");
    let said = format!("{found:?}");
    assert!(!said.contains("the cat"), "{said}");
}

#[test]
fn a_collector_that_does_not_answer_keeps_nobody_waiting() {
    // It is connected to and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let environment =
        "unset http_proxy HTTP_PROXY all_proxy ALL_PROXY; export OTEL_BSP_SCHEDULE_DELAY=10";
    let server = Program::start_after(environment, &["--otlp-endpoint", &address]);
    let client = server.client;
    client.ask(TEXT, &long(1));
    let (_held, _) = silent.accept().unwrap();
    let began = Instant::now();
    for _ in 0..20 {
        client.ask(TEXT, &long(1));
    }
    // Less than one export has, and each of the requests would have waited for one.
    assert!(began.elapsed() < Duration::from_secs(9));
    server.terminate();
    let began = Instant::now();
    let (status, log) = server.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(began.elapsed() < Duration::from_secs(8), "{log}");
    assert!(log.contains("did not reach the collector"), "{log}");
    // Nobody is there at all.
    drop(silent);
    let named = format!("{environment} OTEL_EXPORTER_OTLP_ENDPOINT={address}");
    let server = Program::start_after(&named, &[]);
    server.client.ask(TEXT, &long(1));
    server.terminate();
    let (status, log) = server.end();
    assert_eq!(status.code(), Some(0), "{log}");
    let told = format!(
        "spans do not reach the collector and are dropped endpoint=\"{address}/v1/traces\""
    );
    assert!(log.contains(&told), "{log}");
}

#[test]
fn a_collector_that_leads_elsewhere_is_not_followed() {
    let (here, elsewhere) = (
        TcpListener::bind("127.0.0.1:0").unwrap(),
        TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    elsewhere.set_nonblocking(true).unwrap();
    let address = format!("http://{}", here.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://{}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        elsewhere.local_addr().unwrap()
    );
    let environment = "unset http_proxy HTTP_PROXY all_proxy ALL_PROXY; \
        export OTEL_EXPORTER_OTLP_HEADERS=api-key=secret OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:9";
    let server = Program::start_after(environment, &["--otlp-endpoint", &address]);
    server.client.ask(TEXT, &long(1));
    server.terminate();
    let (head, _) = take(here.accept().unwrap().0, &answer).unwrap();
    assert!(head.contains("api-key: secret"), "{head}");
    let (status, log) = server.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(
        log.contains("spans do not reach the collector") && log.contains("302"),
        "{log}"
    );
    let asked = elsewhere.accept().map_err(|error| error.kind());
    assert_eq!(asked.unwrap_err(), std::io::ErrorKind::WouldBlock);
}
