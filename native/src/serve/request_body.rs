//! The body of a request: JSON, bounded in bytes, time and what all of them hold together. Knows no field but
//! the model's name.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::api_error::ApiError;
use super::app::App;
use super::body_room::{BodyRoom, HeldRoom, no_room};
use super::named_model::{NamedModel, NotAString};
use super::reading::SHORT;
use super::shutdown::Phase;
use super::until::until;
use crate::text_input::json_fault;

/// Time for the rest of a body once the server drains: who is cut off is not to be waited for.
const LATE: Duration = Duration::from_secs(2);

/// A body that does not come so fast keeps its room from others, and is given up.
const PACE: Pace = Pace {
    kib: 10,
    in_each: Duration::from_secs(10),
};

/// The least that is to come.
#[derive(Clone, Copy)]
struct Pace {
    kib: usize,
    in_each: Duration,
}

/// Why a body was not read.
#[derive(Debug)]
enum NotWhole {
    StoodStill,
    TooLong,
    NoRoom,
    Ended,
}

/// A body that was read. Its bytes count until it is dropped.
#[derive(Debug)]
pub struct RequestBody {
    bytes: Bytes,
    room: HeldRoom,
}

impl RequestBody {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// It is said to be no JSON or to be packed, is too long or too slow, there are too many, or the server ends.
    pub async fn read(request: Request, app: &App) -> Result<Self, ApiError> {
        let App {
            settings,
            body_room,
            shutdown,
            ..
        } = app;
        let headers = request.headers();
        if !is_json(headers) {
            let said = "the body must be JSON: send it with Content-Type: application/json";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, said));
        }
        if !is_plain(headers) {
            let said = "the body must be plain: send it without Content-Encoding, which is not undone here";
            let error = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, said);
            return Err(error.code("unsupported_content_encoding"));
        }
        let longest = settings.max_body;
        let too_long = || {
            let said = format!("the body is too long: {longest} bytes are the most");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, said).code("body_too_long")
        };
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > longest) {
            return Err(too_long());
        }
        let body = Limited::new(request.into_body(), longest);
        let late = async {
            shutdown.reached(Phase::Draining).await;
            // It has less where the server stops before.
            let _ = timeout(LATE, shutdown.reached(Phase::Stopped)).await;
        };
        let gathered = timeout(settings.body_timeout, Self::gather(body, body_room, PACE));
        let Some(gathered) = until(late, gathered).await else {
            return Err(ApiError::shutting_down());
        };
        match gathered {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(NotWhole::TooLong)) => Err(too_long()),
            Ok(Err(NotWhole::NoRoom)) => Err(no_room()),
            Ok(Err(NotWhole::Ended)) => {
                Err(ApiError::bad_request("the body ended before it was whole"))
            }
            Ok(Err(NotWhole::StoodStill)) => {
                let Pace { kib, in_each } = PACE;
                let said = format!(
                    "the body stood still: until it is whole, at least {kib} KiB are to come in each {} s",
                    in_each.as_secs()
                );
                Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, said))
            }
            Err(_) => {
                let said = "the body did not come in the time it has (--body-timeout)";
                Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, said))
            }
        }
    }

    /// Gathers what comes. Room is taken for what has come and the memory it grows into, not for what was announced:
    /// else it would be full of bodies of which next to nothing is there.
    async fn gather(
        mut body: Limited<Body>,
        room: &BodyRoom,
        pace: Pace,
    ) -> Result<Self, NotWhole> {
        let mut bytes = Vec::new();
        let mut held = HeldRoom::default();
        let mut due = (Instant::now() + pace.in_each, pace.kib << 10);
        loop {
            let Ok(frame) = timeout_at(due.0, body.frame()).await else {
                if bytes.len() < due.1 {
                    return Err(NotWhole::StoodStill);
                }
                due = (
                    Instant::now() + pace.in_each,
                    bytes.len() + (pace.kib << 10),
                );
                continue;
            };
            let Some(frame) = frame else {
                break;
            };
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => NotWhole::TooLong,
                false => NotWhole::Ended,
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let all = bytes.len() + data.len();
            if all > bytes.capacity() {
                // As much again, but no more than is still to come, nor than a short body has.
                let rest = body.size_hint().upper().unwrap_or(u64::MAX);
                let most = all.saturating_add(usize::try_from(rest).unwrap_or(usize::MAX));
                let most = if all <= SHORT { most.min(SHORT) } else { most };
                let capacity = (2 * bytes.capacity()).clamp(all, most);
                bytes.reserve_exact(capacity - bytes.len());
            }
            if !room.grow(&mut held, bytes.capacity()) {
                return Err(NotWhole::NoRoom);
            }
            bytes.extend_from_slice(&data);
        }
        bytes.shrink_to_fit();
        let room = held.keep(bytes.len());
        Ok(Self {
            bytes: bytes.into(),
            room,
        })
    }

    /// Its room, without it.
    pub fn into_room(self) -> HeldRoom {
        self.room
    }

    /// Its bytes.
    pub fn num_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The model it names. Takes no memory for the rest.
    ///
    /// # Errors
    /// It is no JSON object, or the model no string.
    pub fn model(&self) -> Result<Option<String>, ApiError> {
        let named: NamedModel = serde_json::from_slice(&self.bytes).map_err(|e| not_json(&e))?;
        match named.model {
            Some(Err(NotAString)) => {
                Err(ApiError::bad_request("model must be a string").param("model"))
            }
            Some(Ok(name)) => Ok(name),
            None => Ok(None),
        }
    }

    /// All of it: a value of JSON takes dozens of times its text, so that few are to be there at once.
    ///
    /// # Errors
    /// It is no JSON, or too deep.
    pub fn value(&self) -> Result<Value, ApiError> {
        serde_json::from_slice(&self.bytes).map_err(|e| not_json(&e))
    }
}

fn not_json(error: &serde_json::Error) -> ApiError {
    if error.is_data() {
        return ApiError::bad_request("the body must be a JSON object").param("body");
    }
    let said = format!("the body is no JSON: {}", json_fault(error));
    ApiError::bad_request(said).code("invalid_json")
}

/// Whether a body is said to be as it is read.
fn is_plain(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CONTENT_ENCODING);
    let mut codings = values
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','));
    codings.all(|coding| {
        let coding = coding.trim_ascii();
        coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let Some(text) = value.and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let kind = text.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::body::HttpBody;
    use hyper::body::Frame;

    use super::*;

    /// A body of which nothing comes after this.
    struct Stuck(Option<Bytes>);

    impl HttpBody for Stuck {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.take() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => Poll::Pending,
            }
        }
    }

    fn body(text: &str) -> RequestBody {
        RequestBody {
            bytes: Bytes::copy_from_slice(text.as_bytes()),
            room: HeldRoom::default(),
        }
    }

    #[test]
    fn the_model_is_found_without_the_rest() {
        let model = |text: &str| body(text).model();
        let found = model(r#"{"a": [[1], {"model": "x"}], "model": "b\"c", "z": null}"#);
        assert_eq!(found.unwrap().unwrap(), "b\"c");
        for none in ["{}", r#"{"model": null}"#] {
            assert_eq!(model(none), Ok(None), "{none}");
        }
        for wrong in ["5", "-5", "0.5", "true", "[1, [2]]", r#"{"a": {}}"#] {
            let error = model(&format!("{{\"model\": {wrong}}}")).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("model"), "{wrong}");
        }
        for wrong in ["[]", "1", "\"x\""] {
            assert_eq!(model(wrong).unwrap_err().param.as_deref(), Some("body"));
        }
        for wrong in ["", "{", "{\"a\"}", "{} x", "\u{0}"] {
            assert_eq!(model(wrong).unwrap_err().code, Some("invalid_json"));
        }
    }

    #[test]
    fn a_body_that_stands_still_is_given_up() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        let pace = Pace {
            kib: 1,
            in_each: Duration::from_millis(20),
        };
        let room = BodyRoom::new(8192);
        let gather = |body: Body| {
            let body = Limited::new(body, 8192);
            runtime.block_on(RequestBody::gather(body, &room, pace))
        };
        for bytes in [0, 1, 1023, 4096, 8192] {
            let some = Body::from(" ".repeat(bytes));
            assert_eq!(gather(some).unwrap().num_bytes(), bytes);
            let stuck = Stuck(Some(Bytes::from(vec![b' '; bytes])));
            let given_up = gather(Body::new(stuck)).unwrap_err();
            assert!(matches!(given_up, NotWhole::StoodStill), "{given_up:?}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{{\"a\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let body = body(&deep);
        assert_eq!(body.model(), Ok(None));
        let error = body.value().unwrap_err();
        assert_eq!(error.code, Some("invalid_json"));
        assert!(error.message.contains("recursion"), "{}", error.message);
    }
}
