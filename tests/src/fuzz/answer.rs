//! The target that takes answers apart, and what must be true of what is told of them.

use serde_json::json;
use twoclock_core::chat::{
    AnswerEvent, AnswerFormat, AnswerSplitter, OfferedTools, Reasoning, ReasoningStyle, Tool,
    ToolStyle,
};

/// The first two bytes say what an answer may be made of and how it is cut into pieces, the rest is the answer. In
/// pieces it is taken apart as it is whole, its calls come one after the other, and what is told is not much longer.
///
/// # Panics
/// It does not.
pub fn answer(bytes: &[u8]) {
    let Some(([kind, piece], text)) = bytes.split_first_chunk() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let (style, flags) = (usize::from(kind & 7), kind >> 3);
    let styles = [ReasoningStyle::Think, ReasoningStyle::MistralThink];
    let format = AnswerFormat {
        reasoning: (flags & 1 != 0).then(|| Reasoning {
            style: styles[usize::from(flags >> 2 & 1)],
            is_open: flags & 2 != 0,
        }),
        tools: ToolStyle::ALL.get(style).map(|&style| OfferedTools {
            style,
            tools: tools().into(),
            parallel: flags & 8 != 0,
        }),
    };
    let mut whole = AnswerSplitter::new(format.clone());
    let mut expected = whole.push(text);
    expected.extend(whole.finish());
    let expected = joined(expected);
    check_order(&expected);
    let told: usize = expected.iter().map(told).sum();
    // A control character of one byte takes six in JSON; a call that says nothing has "{}".
    assert!(told <= 6 * text.len(), "{told} bytes told of {text:?}");

    let mut splitter = AnswerSplitter::new(format);
    let mut events = Vec::new();
    let chars: Vec<char> = text.chars().collect();
    for piece in chars.chunks(usize::from(*piece).max(1)) {
        events.extend(splitter.push(&piece.iter().collect::<String>()));
    }
    events.extend(splitter.finish());
    assert_eq!(joined(events), expected, "pieces of {piece} of {text:?}");
}

fn tools() -> [Tool; 2] {
    let parameters = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "a": {"type": "integer"}, "b": {"type": ["boolean", "null"]},
        "c": {"type": "array", "items": {"type": "object"}}, "d": {"enum": ["x", 1]}
    }});
    [("add", Some(parameters)), ("any", None)].map(|(name, parameters)| Tool {
        name: name.to_owned(),
        parameters,
    })
}

/// Events with neighbours of a kind joined.
fn joined(events: Vec<AnswerEvent>) -> Vec<AnswerEvent> {
    use AnswerEvent::{Arguments, Content, Reasoning};
    let mut all: Vec<AnswerEvent> = Vec::new();
    for event in events {
        match (all.last_mut(), event) {
            (Some(Content(before)), Content(more))
            | (Some(Reasoning(before)), Reasoning(more))
            | (Some(Arguments { text: before, .. }), Arguments { text: more, .. }) => {
                before.push_str(&more);
            }
            (_, event) => all.push(event),
        }
    }
    all
}

/// Bytes that an event tells.
fn told(event: &AnswerEvent) -> usize {
    match event {
        AnswerEvent::Content(text) | AnswerEvent::Reasoning(text) => text.len(),
        AnswerEvent::Arguments { text, .. } => text.len(),
        AnswerEvent::ToolCallBegun { name, .. } => name.len(),
        AnswerEvent::ToolCallEnded { .. } => 0,
    }
}

/// Calls are numbered from 0, and nothing comes inside one but its arguments.
fn check_order(events: &[AnswerEvent]) {
    let (mut begun, mut inside) = (0, false);
    for event in events {
        match event {
            AnswerEvent::ToolCallBegun { index, .. } => {
                assert!(!inside && *index == begun, "{events:?}");
                (begun, inside) = (begun + 1, true);
            }
            AnswerEvent::Arguments { index, .. } => {
                assert!(inside && index + 1 == begun, "{events:?}");
            }
            AnswerEvent::ToolCallEnded { index } => {
                assert!(inside && index + 1 == begun, "{events:?}");
                inside = false;
            }
            AnswerEvent::Content(_) | AnswerEvent::Reasoning(_) => assert!(!inside, "{events:?}"),
        }
    }
    assert!(!inside, "{events:?}");
}
