//! The events of responses, in their order.

use std::sync::Arc;

use serde_json::{Value, json};
use twoclock_core::text::Tokenizer;
use twoclock_core::types::{FinishReason, SamplingParams};

use super::echoed::Echoed;
use super::response::Usage;
use super::responses_stream::ResponseStream;
use twoclock_core::chat::{
    AnswerFormat, AnswerSplitter, OfferedTools, Reasoning, ReasoningStyle, Tool, ToolStyle,
};

fn tokenizer() -> Tokenizer {
    let json = include_bytes!("../../../tests/golden/tokenizer/tokenizer.json");
    Tokenizer::from_json(json, None, None).unwrap()
}

fn format() -> AnswerFormat {
    AnswerFormat {
        reasoning: Some(Reasoning {
            style: ReasoningStyle::Think,
            is_open: false,
        }),
        tools: Some(OfferedTools {
            style: ToolStyle::Hermes,
            tools: Arc::from([Tool {
                name: "add".to_owned(),
                parameters: None,
            }]),
            parallel: true,
        }),
    }
}

/// All events of an answer.
fn events(text: &str, reason: FinishReason) -> Vec<Value> {
    let body = json!({"input": "Hi", "temperature": 0.7, "user": null});
    let echoed = Echoed::of(&body).unwrap();
    let drawn = SamplingParams {
        temperature: 0.7,
        top_p: 0.9,
        ..SamplingParams::default()
    };
    let mut stream = ResponseStream::new("resp_1", 7, "m", &drawn, echoed, format());
    let mut splitter = AnswerSplitter::new(format());
    let mut events = stream.begin();
    for c in text.chars() {
        events.extend(stream.extend(splitter.push(&c.to_string())));
    }
    events.extend(stream.extend(splitter.finish()));
    let usage = Usage {
        prompt_tokens: 9,
        completion_tokens: 5,
        cached_tokens: 4,
    };
    events.extend(stream.end(Some(reason), usage, &tokenizer()));
    events
}

#[test]
fn a_stream_has_its_events_in_order_and_ends_with_all_of_it() {
    let text = "<think>the cat</think>Hi<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>";
    let events = events(text, FinishReason::Stop);
    for (n, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], n);
    }
    let mut kinds: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    kinds.dedup();
    let item = |delta: &'static [&'static str]| {
        let around = ["response.output_item.added", "response.output_item.done"];
        [&around[..1], delta, &around[1..]].concat()
    };
    let part = ["response.content_part.added", "response.content_part.done"];
    let expected = [
        vec!["response.created", "response.in_progress"],
        item(&[
            "response.content_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
        ]),
        item(&[
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
        ]),
        item(&[
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
        ]),
        vec!["response.completed"],
    ];
    assert_eq!(kinds, expected.concat());
    assert!(kinds.contains(&part[0]) && kinds.contains(&part[1]));
    let response = &events.last().unwrap()["response"];
    let call_id = response["output"][2]["call_id"].clone();
    assert_eq!(
        response["output"],
        json!([
            {"id": "rs_1_0", "type": "reasoning", "status": "completed", "summary": [],
                "content": [{"type": "reasoning_text", "text": "the cat"}]},
            {"id": "msg_1_1", "type": "message", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}]},
            {"id": "fc_1_2", "type": "function_call", "status": "completed", "call_id": call_id,
                "name": "add", "arguments": "{}"},
        ])
    );
    assert_eq!(response["usage"]["total_tokens"], 14);
    assert_eq!(
        response["usage"]["input_tokens_details"]["cached_tokens"],
        4
    );
    let thoughts = tokenizer().encode("the cat", false, false).unwrap().len();
    assert_eq!(
        response["usage"]["output_tokens_details"]["reasoning_tokens"],
        thoughts
    );
    assert_eq!(
        (&response["temperature"], &response["top_p"]),
        (&json!(0.7), &json!(0.9))
    );
    let text: String = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(text, "Hi");
}

#[test]
fn a_cut_answer_is_incomplete_and_a_failed_one_says_why() {
    let events = events("Hi", FinishReason::Length);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(
        last["response"]["incomplete_details"]["reason"],
        "max_output_tokens"
    );
    assert_eq!(last["response"]["output"][0]["status"], "incomplete");
    let echoed = Echoed::of(&json!({})).unwrap();
    let drawn = SamplingParams::default();
    let mut stream = ResponseStream::new("resp_1", 7, "m", &drawn, echoed, format());
    stream.begin();
    let failed = stream.fail("server_error", "the device is lost");
    assert_eq!(failed[0]["type"], "response.failed");
    assert_eq!(
        failed[0]["response"]["error"]["message"],
        "the device is lost"
    );
}
