//! The body of a request: JSON, bounded in bytes, time and what all of them hold together. Knows no field but
//! the model's name.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::api_error::ApiError;
use super::app::App;
use super::shutdown::Phase;
use super::until::until;
use crate::text_input::json_fault;

/// Bodies of the greatest length that are held at once.
const WHOLE_BODIES: usize = 64;

/// Time for the rest of a body once the server drains: who is cut off is not to be waited for.
const LATE: Duration = Duration::from_secs(2);

/// What all bodies together may hold.
#[derive(Clone, Debug)]
pub struct BodyRoom {
    /// A permit a KiB.
    kib: Arc<Semaphore>,
}

impl BodyRoom {
    /// Room for some bodies of `longest` bytes, and for many shorter ones.
    pub fn new(longest: usize) -> Self {
        let kib = longest.div_ceil(1024).saturating_mul(WHOLE_BODIES);
        Self {
            kib: Arc::new(Semaphore::new(kib.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// So much of it, if it is there.
    fn kib(&self, kib: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(kib).ok()?;
        Arc::clone(&self.kib).try_acquire_many_owned(kib).ok()
    }
}

/// Why a body was not read.
enum NotWhole {
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

/// Room that is taken until this is dropped. It only ever shrinks: nobody waits for room while holding some.
#[derive(Debug)]
pub struct HeldRoom(OwnedSemaphorePermit);

impl HeldRoom {
    /// Keeps what so many bytes take and gives the rest back; all of it, where they are more than were read.
    #[must_use]
    pub fn keep(mut self, bytes: usize) -> Self {
        match self.0.split(bytes.div_ceil(1024).min(self.0.num_permits())) {
            Some(kept) => Self(kept),
            None => self,
        }
    }
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
        let gathered = timeout(settings.body_timeout, Self::gather(body, body_room));
        let Some(gathered) = until(late, gathered).await else {
            return Err(ApiError::shutting_down());
        };
        match gathered {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(NotWhole::TooLong)) => Err(too_long()),
            Ok(Err(NotWhole::NoRoom)) => {
                let said =
                    "the bodies of other requests take all the room there is: try again later";
                let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, said);
                Err(error.code("too_many_bodies").retry_after(1))
            }
            Ok(Err(NotWhole::Ended)) => {
                Err(ApiError::bad_request("the body ended before it was whole"))
            }
            Err(_) => {
                let said = "the body did not come in the time it has (--body-timeout)";
                Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, said))
            }
        }
    }

    /// Gathers what comes. Room is taken for what has come, not for what was announced: else it would be full
    /// of bodies of which next to nothing is there.
    async fn gather(mut body: Limited<Body>, room: &BodyRoom) -> Result<Self, NotWhole> {
        let mut bytes = Vec::new();
        let mut held = room.kib(0).ok_or(NotWhole::NoRoom)?;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => NotWhole::TooLong,
                false => NotWhole::Ended,
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let all = bytes.len() + data.len();
            let more = all.div_ceil(1024) - held.num_permits();
            held.merge(room.kib(more).ok_or(NotWhole::NoRoom)?);
            bytes.extend_from_slice(&data);
        }
        Ok(Self {
            bytes: bytes.into(),
            room: HeldRoom(held),
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
        let named: Named = serde_json::from_slice(&self.bytes).map_err(|e| not_json(&e))?;
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

struct NotAString;

/// The name in a body.
struct Named {
    model: Option<Result<Option<String>, NotAString>>,
}

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Named;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named, A::Error> {
        let mut model = None;
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            if key == "model" {
                model = Some(map.next_value::<Text>()?.0);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Named { model })
    }
}

/// A string, nothing, or something else.
struct Text(Result<Option<String>, NotAString>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyText)
    }
}

struct AnyText;

impl<'de> Visitor<'de> for AnyText {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<Text, E> {
        Ok(Text(Ok(Some(text.to_owned()))))
    }

    fn visit_unit<E>(self) -> Result<Text, E> {
        Ok(Text(Ok(None)))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Text, E> {
        Ok(Text(Err(NotAString)))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Text, E> {
        Ok(Text(Err(NotAString)))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Text, E> {
        Ok(Text(Err(NotAString)))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Text, E> {
        Ok(Text(Err(NotAString)))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Text, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Text(Err(NotAString)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Text(Err(NotAString)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> RequestBody {
        let room = BodyRoom::new(1);
        RequestBody {
            bytes: Bytes::copy_from_slice(text.as_bytes()),
            room: HeldRoom(room.kib(1).unwrap()),
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
    fn what_is_kept_of_a_body_keeps_its_room() {
        let all = WHOLE_BODIES * 4;
        let room = BodyRoom::new(4096);
        let free = || room.kib.available_permits();
        let held = |kib| HeldRoom(room.kib(kib).unwrap());
        for (bytes, kept) in [(0, 0), (1, 1), (1024, 1), (1025, 2), (4096, 4), (9999, 4)] {
            let held = held(4).keep(bytes);
            assert_eq!(free(), all - kept, "{bytes}");
            drop(held);
            assert_eq!(free(), all);
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
