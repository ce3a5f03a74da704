//! A streamed answer as it comes over the wire: when its tokens came, and what the server said of them.
//! Knows no connection.

use std::io::{BufRead, Read};
use std::time::Instant;

use serde_json::Value;

use crate::output;

/// Longest line taken, bytes.
const MAX_LINE: u64 = 16 << 20;

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Streamed {
    /// When each piece with a token came.
    pub times: Vec<Instant>,
    /// Tokens of the prompt, where the server counts them.
    pub prompt_tokens: Option<usize>,
    /// Tokens of the answer, where the server counts them.
    pub completion_tokens: Option<usize>,
    /// Tokens of the prompt that it did not compute.
    pub cached_tokens: Option<usize>,
    /// Why it ended.
    pub finish_reason: Option<String>,
}

impl Streamed {
    /// Reads the events of a body up to its end.
    ///
    /// # Errors
    /// In one line: the connection's, an error that the server tells, or what is no event.
    pub fn read(body: impl BufRead, now: impl Fn() -> Instant) -> Result<Self, String> {
        let mut body = body;
        let mut answer = Self::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut bounded = (&mut body).take(MAX_LINE);
            let read = bounded.read_until(b'\n', &mut line);
            let length = read.map_err(|e| format!("the answer broke off: {e}"))?;
            if length as u64 == MAX_LINE {
                return Err(format!(
                    "a line of the answer has more than {MAX_LINE} bytes"
                ));
            }
            let Some(data) = data(&line) else {
                match length {
                    0 => return Err("the answer ended without [DONE]".to_owned()),
                    _ => continue,
                }
            };
            if data == b"[DONE]" {
                // What follows is read so that the connection can be used again.
                let rest = std::io::copy(&mut (&mut body).take(MAX_LINE), &mut std::io::sink());
                return match (rest, answer.times.is_empty()) {
                    (_, true) => Err("there was no token in the answer".to_owned()),
                    _ => Ok(answer),
                };
            }
            answer.take(data, &now)?;
        }
    }

    fn take(&mut self, data: &[u8], now: impl Fn() -> Instant) -> Result<(), String> {
        let came = now();
        let event: Value = serde_json::from_slice(data)
            .map_err(|e| format!("an event is no JSON ({e}): {}", shown(data)))?;
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            return Err(format!(
                "in the stream: {}",
                shown(error.to_string().as_bytes())
            ));
        }
        if let Some(usage) = event.get("usage").filter(|usage| usage.is_object()) {
            let count = |value: &Value| value.as_u64().map(|n| n as usize);
            self.prompt_tokens = usage.get("prompt_tokens").and_then(count);
            self.completion_tokens = usage.get("completion_tokens").and_then(count);
            let details = usage.get("prompt_tokens_details");
            self.cached_tokens = details.and_then(|d| d.get("cached_tokens")).and_then(count);
        }
        for choice in event
            .get("choices")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let finish = choice.get("finish_reason").and_then(Value::as_str);
            if let Some(finish) = finish {
                self.finish_reason = Some(finish.to_owned());
            }
            // The first piece of a chat says who speaks; a token may have no text yet.
            let brings = match choice.get("delta") {
                Some(delta) => {
                    let says = |name| delta.get(name).is_some_and(|v| !v.is_null() && v != "");
                    let opens = delta.get("role").is_some();
                    let said = ["content", "reasoning_content", "tool_calls"]
                        .into_iter()
                        .any(says);
                    said || !opens && finish.is_none()
                }
                None => {
                    let text = choice.get("text").and_then(Value::as_str).unwrap_or("");
                    !text.is_empty() || finish.is_none()
                }
            };
            if brings {
                self.times.push(came);
            }
        }
        Ok(())
    }
}

/// What an event's line says.
fn data(line: &[u8]) -> Option<&[u8]> {
    let data = line.strip_prefix(b"data:")?;
    Some(data.trim_ascii())
}

/// As an error repeats it.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    output::beginning(&text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Streamed, String> {
        Streamed::read(body.as_bytes(), Instant::now)
    }

    #[test]
    fn pieces_with_tokens_are_counted() {
        let answer = read(
            ": ping\r\n\r\ndata: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}],\"usage\":null}\n\n\
             data: {\"choices\":[{\"text\":\"\",\"finish_reason\":null}]}\n\n\
             data:{\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n\
             data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,\
             \"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n",
        )
        .unwrap();
        assert_eq!(answer.times.len(), 2);
        assert_eq!(
            (
                answer.prompt_tokens,
                answer.completion_tokens,
                answer.cached_tokens
            ),
            (Some(9), Some(3), Some(8))
        );
        assert_eq!(answer.finish_reason.as_deref(), Some("length"));
        let chat = read(
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\
             data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\
             data: {\"choices\":[{\"delta\":{\"tool_calls\":[{}]}}]}\n\
             data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\ndata: [DONE]\n",
        )
        .unwrap();
        assert_eq!(chat.times.len(), 2);
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for (body, because) in [
            ("", "without [DONE]"),
            ("data: {\"choices\":[{\"text\":\"a\"}]}\n", "without [DONE]"),
            ("data: {\"choices\":[{\"text\":\"a\"", "no JSON"),
            ("data: [DONE]\n", "no token"),
            (
                "data: {\"error\":{\"message\":\"the device is lost\"}}\n",
                "the device is lost",
            ),
        ] {
            let said = read(body).unwrap_err();
            assert!(said.contains(because), "{said}");
        }
    }
}
