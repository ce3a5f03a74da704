//! An error as clients get it: a status, and a body in OpenAI's shape that names the field at fault. The answer
//! carries the error itself too, for paths whose clients look for another shape.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use twoclock_core::engine::handle::StreamError;
use twoclock_core::engine::handle::SubmitError;
use twoclock_core::error::Error;

use crate::openai::{Refusal, error_body, error_kind};

/// What a request met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// One sentence.
    pub message: String,
    /// The field at fault.
    pub param: Option<String>,
    /// For programs.
    pub code: Option<&'static str>,
    /// After how many seconds to try again.
    pub retry_after: Option<u32>,
}

impl ApiError {
    /// An error of this status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
            retry_after: None,
        }
    }

    /// The request's own fault.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// This program's fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// What a panic becomes: its words are for the log, which the panic hook writes.
    pub fn fault() -> Self {
        Self::internal("this request met a fault of the server")
    }

    /// Not now.
    pub fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message).code(code)
    }

    /// The server ends and takes no more.
    pub fn shutting_down() -> Self {
        Self::unavailable(
            "shutting_down",
            "the server is shutting down and takes no more requests",
        )
        .retry_after(5)
    }

    /// The server ends, and with it an answer that is not whole.
    pub fn cut_short() -> Self {
        Self {
            message:
                "the server is shutting down, and this answer was not whole when its time was over \
                      (--drain-timeout, or a second signal)"
                    .to_owned(),
            ..Self::shutting_down()
        }
    }

    /// The request had its time.
    pub fn timed_out() -> Self {
        let said =
            "the time that a request has is over, and the answer is not whole (--request-timeout)";
        Self::new(StatusCode::GATEWAY_TIMEOUT, said).code("request_timeout")
    }

    /// With a name for programs.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// With the field at fault.
    #[must_use]
    pub fn param(mut self, param: &str) -> Self {
        self.param = Some(param.to_owned());
        self
    }

    /// With the seconds after which to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// What it is called in the log and in spans: its code, or else its kind.
    pub fn word(&self) -> &'static str {
        self.code
            .unwrap_or_else(|| error_kind(self.status.as_u16()))
    }

    /// The body.
    pub fn body(&self) -> Value {
        let status = self.status.as_u16();
        error_body(status, &self.message, self.param.as_deref(), self.code)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self {
            message: refusal.to_string(),
            param: refusal.param,
            code: refusal.code,
            ..Self::bad_request("")
        }
    }
}

/// What the engine says of itself. What it says of a request is for whoever knows its fields.
impl From<&StreamError> for ApiError {
    fn from(error: &StreamError) -> Self {
        let said = error.to_string();
        match error {
            StreamError::Refused(_) => Self::bad_request(said),
            StreamError::StepFailed(_) => Self::internal(said),
            StreamError::DeviceLost(_) => Self::unavailable("device_lost", said),
            StreamError::Panicked(_) => Self::internal("the engine stopped at a fault of its own"),
            StreamError::Gone => Self::cut_short(),
        }
    }
}

/// Why the engine did not take a request; `refusal` reads what is the request's own fault.
pub fn submit_error(
    error: &SubmitError,
    refusal: impl FnOnce(&Error) -> Option<Refusal>,
) -> ApiError {
    match error {
        SubmitError::QueueFull { waiting, .. } => {
            let said =
                format!("{waiting} requests wait already, as many as may here: try again later");
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, said)
                .code("queue_full")
                .retry_after(1)
        }
        SubmitError::ShuttingDown => ApiError::shutting_down(),
        SubmitError::Refused(error) => refused(error, refusal),
        SubmitError::Closed(error) => error.into(),
    }
}

/// What a stream said, of the request or of the engine.
pub fn stream_error(
    error: &StreamError,
    refusal: impl FnOnce(&Error) -> Option<Refusal>,
) -> ApiError {
    match error {
        StreamError::Refused(error) => refused(error, refusal),
        error => error.into(),
    }
}

fn refused(error: &Error, refusal: impl FnOnce(&Error) -> Option<Refusal>) -> ApiError {
    match refusal(error) {
        Some(refusal) => refusal.into(),
        None => ApiError::internal(error.to_string()),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = self.body().to_string();
        let mut response = (
            self.status,
            [(header::CONTENT_TYPE, "application/json")],
            body,
        )
            .into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.code == Some("unsupported_content_encoding") {
            headers.insert(
                header::ACCEPT_ENCODING,
                HeaderValue::from_static("identity"),
            );
        }
        response.extensions_mut().insert(self);
        response
    }
}
