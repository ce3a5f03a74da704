//! Asks a server of OpenAI's protocol: which models it has, and for answers piece by piece. One
//! connection is kept for each request under way (`ureq`, which the program brings already: blocking
//! reads on a thread each tell when bytes came, and need no runtime). Knows no statistics.

use std::io::{BufReader, ErrorKind, Read};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};
use ureq::{Agent, http};
use url::Url;

use super::args::{BenchServeArgs, Endpoint};
use super::events::Events;
use super::stream::{Streamed, shown};
use super::workload::Job;

/// Longest answer that is read as a whole, bytes.
const MAX_BODY: u64 = 16 << 20;

/// Longest time that the end of a connection's answer is waited for.
const MAX_REST: Duration = Duration::from_secs(1);
/// Stack of the thread that waits, bytes.
const STACK: usize = 256 << 10;

/// The server.
#[derive(Debug)]
pub struct Client {
    agent: Agent,
    base: String,
    authorization: Option<String>,
    endpoint: Endpoint,
    model: String,
    temperature: f32,
    ignore_eos: bool,
    seed: u64,
    rests: Rests,
}

/// What the server says of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub id: String,
    /// Longest sequence, where it says so.
    pub max_model_len: Option<usize>,
}

impl Client {
    /// For the server of these arguments. The key is one line.
    ///
    /// # Errors
    /// What is no address.
    pub fn new(args: &BenchServeArgs, key: Option<&str>) -> anyhow::Result<Self> {
        let url = Url::parse(&args.base_url);
        let is_served =
            |url: &Url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
        let Some(url) = url.ok().filter(is_served) else {
            bail!(
                "--base-url is {:?}, but must begin with http:// or https:// and name a host, as \
                 http://127.0.0.1:8000 does",
                args.base_url
            );
        };
        let path = url.path().trim_end_matches('/');
        let root = url.as_str().trim_end_matches('/');
        let base = match path.ends_with("/v1") {
            true => root.to_owned(),
            false => format!("{root}/v1"),
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_idle_connections(8192)
            .max_idle_connections_per_host(4096)
            .user_agent(concat!("twoclock-bench/", env!("CARGO_PKG_VERSION")))
            .timeout_global(Some(Duration::from_secs_f64(args.timeout)))
            .build();
        Ok(Self {
            agent: config.new_agent(),
            base,
            authorization: key.map(|key| format!("Bearer {key}")),
            endpoint: args.endpoint,
            model: args.model.clone().unwrap_or_default(),
            temperature: args.temperature,
            ignore_eos: args.ignore_eos,
            seed: args.seed,
            rests: Rests::default(),
        })
    }

    /// The model that is asked for.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Asks for this model from now on.
    pub fn set_model(&mut self, model: String) {
        self.model = model;
    }

    /// The models there are.
    ///
    /// # Errors
    /// The server does not answer, or in another way.
    pub fn models(&self) -> anyhow::Result<Vec<Listed>> {
        let url = format!("{}/models", self.base);
        let mut request = self.agent.get(&url);
        if let Some(key) = &self.authorization {
            request = request.header("Authorization", key);
        }
        let response = request.call().map_err(|error| {
            let hint = match &error {
                ureq::Error::Io(e) if e.kind() == ErrorKind::ConnectionRefused => {
                    " (nobody listens there: is `twoclock serve` running?)"
                }
                _ => "",
            };
            anyhow!("{url}: {error}{hint}")
        })?;
        let status = response.status();
        let body = whole(response.into_body().into_reader())?;
        if !status.is_success() {
            let hint = match (status, &self.authorization) {
                (http::StatusCode::UNAUTHORIZED, None) => {
                    " (give the server's key in OPENAI_API_KEY or --api-key-file)"
                }
                (http::StatusCode::UNAUTHORIZED, Some(_)) => {
                    " (the key of --api-key-file, else of OPENAI_API_KEY, is not the server's)"
                }
                _ => "",
            };
            bail!("{url} says {status}: {}{hint}", shown(&body));
        }
        let body: Value =
            serde_json::from_slice(&body).with_context(|| format!("{url} is no JSON"))?;
        let list = body.get("data").and_then(Value::as_array);
        let listed = list.into_iter().flatten().filter_map(|model| {
            let names = ["max_model_len", "context_length"];
            let length = names.iter().find_map(|name| model.get(name)?.as_u64());
            Some(Listed {
                id: model.get("id")?.as_str()?.to_owned(),
                max_model_len: length.map(|n| n as usize),
            })
        });
        Ok(listed.collect())
    }

    /// The body that asks for an answer.
    pub fn body(&self, job: &Job) -> Value {
        let mut body = json!({
            "model": self.model,
            "max_tokens": job.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        match self.endpoint {
            Endpoint::Completions => body["prompt"] = job.prompt.clone(),
            Endpoint::Chat => {
                body["messages"] = json!([{"role": "user", "content": job.prompt}]);
            }
        }
        if self.ignore_eos {
            body["ignore_eos"] = json!(true);
        }
        body
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// In one line: why there is none.
    pub fn complete(&self, job: &Job) -> Result<Streamed, String> {
        let path = match self.endpoint {
            Endpoint::Completions => "completions",
            Endpoint::Chat => "chat/completions",
        };
        let mut request = self
            .agent
            .post(format!("{}/{path}", self.base))
            .header("Content-Type", "application/json")
            .header("Accept", "text/event-stream");
        if let Some(key) = &self.authorization {
            request = request.header("Authorization", key);
        }
        let response = request.send(self.body(job).to_string());
        let response = response.map_err(|e| shown(e.to_string().as_bytes()))?;
        let status = response.status();
        let reader = response.into_body().into_reader();
        if status != http::StatusCode::OK {
            let said = whole(reader).map_or_else(|e| e.to_string(), |body| shown(&body));
            return Err(format!("HTTP {}: {said}", status.as_u16()));
        }
        let mut events = Events::new(BufReader::new(reader));
        let answer = Streamed::read(&mut events, Instant::now);
        if answer.is_ok() {
            self.rests.read(events.into_rest());
        }
        answer
    }

    /// What the user is to know of the server's manners, once they were seen.
    pub fn hint(&self) -> Option<&'static str> {
        self.rests.stay_open().then_some(
            "the server leaves its answers open behind the last event: requests were sent over a connection each, which \
             TTFT counts",
        )
    }
}

/// What follows answers, which is read so that their connections can be used again. A server may leave them open and
/// silent: if the first is, it is waited for, and from then on connections are closed instead. Each that is waited for
/// takes a thread until the request's own time is over. Of a server that has once ended an answer a late end is one
/// connection's.
#[derive(Debug, Default)]
struct Rests(OnceLock<bool>);

impl Rests {
    /// Whether the server leaves them open.
    fn stay_open(&self) -> bool {
        self.0.get() == Some(&true)
    }

    fn read(&self, mut rest: impl Read + Send + 'static) {
        if self.stay_open() {
            return;
        }
        let (tells, is_read) = mpsc::channel();
        let read = move || {
            let began = Instant::now();
            let mut bytes = [0; 4096];
            while began.elapsed() < MAX_REST && rest.read(&mut bytes).is_ok_and(|read| read > 0) {}
            // Back among those that are kept, if it ended, before the next request looks for one.
            drop(rest);
            let _ = tells.send(());
        };
        if thread::Builder::new().stack_size(STACK).spawn(read).is_ok() {
            let stays_open = is_read.recv_timeout(MAX_REST).is_err();
            // The first that is known counts.
            let _ = self.0.set(stays_open);
        }
    }
}

fn whole(reader: impl Read) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    reader.take(MAX_BODY).read_to_end(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_server_that_leaves_connections_open_is_waited_for_once() {
        /// Says nothing until its other end is gone, and counts who listens.
        struct Silent(mpsc::Receiver<()>, Arc<AtomicUsize>);

        impl Read for Silent {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                self.1.fetch_add(1, Ordering::Relaxed);
                let _ = self.0.recv();
                Ok(0)
            }
        }

        let num_read = Arc::new(AtomicUsize::new(0));
        let read_silent = |rests: &Rests| {
            let (stays, is_open) = mpsc::channel();
            rests.read(Silent(is_open, Arc::clone(&num_read)));
            drop(stays);
        };
        let rests = Rests::default();
        for _ in 0..3 {
            read_silent(&rests);
            assert!(rests.stay_open());
        }
        assert_eq!(num_read.load(Ordering::Relaxed), 1);
        // One that ends late tells nothing of a server that ended another.
        let rests = Rests::default();
        rests.read(&b"\n"[..]);
        read_silent(&rests);
        assert!(!rests.stay_open());
    }
}
