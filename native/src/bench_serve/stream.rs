//! A streamed answer as it comes over the wire: when its tokens came, and what the server said of them.
//! Knows no connection.

use std::io::BufRead;
use std::time::Instant;

use serde_json::Value;

use super::events::Events;
use crate::output;

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
    /// Reads the events of a body up to `[DONE]`.
    ///
    /// # Errors
    /// In one line: the connection's, an error that the server tells, or what is no event.
    pub fn read<R: BufRead>(
        events: &mut Events<R>,
        now: impl Fn() -> Instant,
    ) -> Result<Self, String> {
        let mut answer = Self::default();
        loop {
            let data = events
                .next_data()
                .map_err(|e| shown(e.to_string().as_bytes()))?;
            let data = data.ok_or("the answer ended without [DONE]")?;
            let data = data.trim_ascii();
            if data == b"[DONE]" {
                return match answer.times.is_empty() {
                    true => Err("there was no token in the answer".to_owned()),
                    false => Ok(answer),
                };
            }
            // Some fill their silence with events of none.
            if !data.is_empty() {
                answer.take(data, &now)?;
            }
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
            let details = usage.get("prompt_tokens_details");
            self.prompt_tokens = count("prompt_tokens", usage)?;
            self.completion_tokens = count("completion_tokens", usage)?;
            self.cached_tokens = details.map_or(Ok(None), |of| count("cached_tokens", of))?;
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

/// How many tokens a server counts, where it does.
fn count(name: &str, usage: &Value) -> Result<Option<usize>, String> {
    let told = usage.get(name).and_then(Value::as_u64);
    match told.map(u32::try_from) {
        None => Ok(None),
        Some(Ok(tokens)) => Ok(Some(tokens as usize)),
        Some(Err(_)) => Err(format!(
            "the usage is none: {name} is {}, which no request can have",
            told.unwrap_or_default()
        )),
    }
}

/// As an error repeats it.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let words: Vec<_> = output::beginning(&text)
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    output::one_line(&words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Streamed, String> {
        Streamed::read(&mut Events::new(body.as_bytes()), Instant::now)
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
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
             data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n\
             data: {\"choices\":[{\"delta\":{\"tool_calls\":[{}]}}]}\n\n\
             data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        )
        .unwrap();
        assert_eq!(chat.times.len(), 2);
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for (body, because) in [
            ("", "without [DONE]"),
            (
                "data: {\"choices\":[{\"text\":\"a\"}]}\n\n",
                "without [DONE]",
            ),
            ("data: {\"choices\":[{\"text\":\"a\"\n\n", "no JSON"),
            ("data: [DONE]\n\n", "no token"),
            (
                "data: {\"error\":{\"message\":\"the device is lost\"}}\n\n",
                "the device is lost",
            ),
            (
                "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":18446744073709551615}}\n\n",
                "prompt_tokens is 18446744073709551615",
            ),
            ("data: \u{1b}[2J\u{9b}5m\n\n", "\\u{1b}[2J\\u{9b}5m"),
            (
                "data: {\"error\":\"\\u001b[2J\\u009b\"}\n\n",
                "\\u001b[2J\\u{9b}",
            ),
        ] {
            let said = read(body).unwrap_err();
            assert!(said.contains(because), "{said}");
            assert!(!said.contains(char::is_control), "{said:?}");
        }
    }
}
