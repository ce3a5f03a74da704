//! Errors as OpenAI's protocol has them. Knows not what went wrong.

use serde_json::{Value, json};

/// What kind of error a status is.
pub fn error_kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        _ => "server_error",
    }
}

/// The body of one: a sentence, the field at fault, and a name for programs.
pub fn error_body(status: u16, message: &str, param: Option<&str>, code: Option<&str>) -> Value {
    json!({"error": {"message": message, "type": error_kind(status), "param": param, "code": code}})
}
