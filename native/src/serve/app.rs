//! What all handlers share. Knows no path and no socket.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::HeaderValue;

use super::allowed_hosts::AllowedHosts;
use super::answer_room::AnswerRoom;
use super::auth::ApiKeys;
use super::body_room::BodyRoom;
use super::connections::Connections;
use super::http_metrics::HttpMetrics;
use super::models::Models;
use super::process_facts::ProcessFacts;
use super::reading::Reading;
use super::request_id::Numbers;
use super::shutdown::Shutdown;
use super::telemetry::Telemetry;

/// Bounds of requests.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Longest body, bytes.
    pub max_body: usize,
    /// Time for a body to come.
    pub body_timeout: Duration,
    /// Time for a whole request.
    pub request_timeout: Duration,
    /// Between comments in a stream while there is nothing to say.
    pub ping_interval: Duration,
}

/// What all handlers share.
#[derive(Debug)]
pub struct App {
    /// The models.
    pub models: Models,
    /// Bounds.
    pub settings: Settings,
    /// Who is let in.
    pub keys: ApiKeys,
    /// What it may be called.
    pub allowed_hosts: AllowedHosts,
    /// How many are connected.
    pub connections: Connections,
    /// Pages of these origins may ask.
    pub cors_origins: Vec<HeaderValue>,
    /// How it ends.
    pub shutdown: Shutdown,
    /// What all bodies may hold.
    pub body_room: BodyRoom,
    /// What all answers that come whole may hold.
    pub answer_room: AnswerRoom,
    /// Where bodies are read.
    pub reading: Reading,
    /// Names and seeds.
    pub numbers: Numbers,
    /// Requests by path and status.
    pub http_metrics: HttpMetrics,
    /// What the host says of this process.
    pub process_facts: ProcessFacts,
    /// Where spans go, if anywhere.
    pub telemetry: Option<Telemetry>,
    /// When it began, seconds of the epoch.
    pub created: u64,
}

impl App {
    /// An app that has answered nothing.
    pub fn new(models: Models, settings: Settings, keys: ApiKeys) -> Self {
        Self {
            models,
            settings,
            keys,
            allowed_hosts: AllowedHosts::default(),
            connections: Connections::new(1024),
            cors_origins: Vec::new(),
            shutdown: Shutdown::default(),
            body_room: BodyRoom::new(settings.max_body),
            answer_room: AnswerRoom::new(settings.max_body),
            reading: Reading::new(num_cores()),
            numbers: Numbers::default(),
            http_metrics: HttpMetrics::default(),
            process_facts: ProcessFacts::default(),
            telemetry: None,
            created: now(),
        }
    }
}

/// Cores of this host, as far as it says.
pub fn num_cores() -> usize {
    thread::available_parallelism().map_or(2, Into::into)
}

/// Seconds of the epoch.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or(Duration::ZERO).as_secs()
}
