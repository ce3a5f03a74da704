//! What an operator reads in the log of a server, and counts beside it.

use crate::answers::{CHAT, TEXT, chat};
use crate::scene::{Client, Program, long, read_until};
use serde_json::{Value, json};

/// So much to answer that the tiny model, which is quick, does not end in a test's time.
pub(crate) fn endless() -> Value {
    let mut body = long(500);
    body["prompt"] = json!(vec![[1, 2, 3]; 60]);
    body["n"] = json!(16);
    body["stream"] = json!(true);
    body
}

/// The log's line of the request of this name.
fn line<'a>(log: &'a str, id: &str) -> &'a str {
    let id = format!("id=\"{id}\"");
    let mut found = log.lines().filter(|line| line.contains(&id));
    let line = found.next().unwrap_or_else(|| panic!("no {id} in {log}"));
    assert!(found.next().is_none(), "{log}");
    line
}

fn post(client: Client, path: &str, id: &str, body: &Value) -> crate::scene::Reply {
    let headers = format!("{}x-request-id: {id}\r\n", crate::scene::JSON);
    client.send("POST", path, &headers, &body.to_string())
}

#[test]
fn a_stream_that_was_cut_is_told_and_counted() {
    let server = Program::start(&["--request-timeout", "1"]);
    let client = server.client;
    let cut = post(client, TEXT, "late", &endless());
    assert_eq!(cut.status, 200);
    assert_eq!(
        cut.events().pop().unwrap()["error"]["code"],
        "request_timeout"
    );
    let mut gone = client.begin(TEXT, &endless());
    read_until(&mut gone, "data: ");
    drop(gone);
    assert_eq!(post(client, TEXT, "good", &long(3)).status, 200);
    let bad = chat(json!({"temperature": -1}));
    assert_eq!(post(client, CHAT, "bad", &bad).status, 400);
    let cuts = "twoclock:http_streams_cut_total{path=\"/v1/completions\",status=";
    // It is over a moment after the client has gone.
    wait(|| {
        client
            .get("/metrics")
            .body
            .contains(&format!("{cuts}\"499\"}} 1"))
    });
    let metrics = client.get("/metrics").body;
    let ends = "vllm:request_success_total{model_name=\"tiny\",finished_reason=";
    for (sample, count) in [
        (format!("{cuts}\"504\"}}"), 1),
        (format!("{cuts}\"499\"}}"), 1),
        (format!("{cuts}\"500\"}}"), 0),
        (format!("{ends}\"error\"}}"), 0),
        (
            "twoclock:http_requests_total{path=\"/v1/completions\",status=\"200\"}".into(),
            3,
        ),
    ] {
        let line = format!("{sample} {count}");
        assert!(metrics.lines().any(|l| l == line), "{line} in {metrics}");
    }
    server.terminate();
    let (_, log) = server.end();
    let late = line(&log, "late");
    assert!(
        late.contains("status=200") && late.contains("error=\"request_timeout\""),
        "{late}"
    );
    assert!(late.contains("--request-timeout"), "{late}");
    assert!(log.contains("error=\"client_gone\""), "{log}");
    assert!(!line(&log, "good").contains("error"), "{log}");
    let bad = line(&log, "bad");
    assert!(
        bad.contains("error=\"400\"") && !bad.contains("because"),
        "{bad}"
    );
}
