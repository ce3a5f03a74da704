//! Answers of a given form through a handle. Knows no thread: one poll after the other.

use super::SubmitError;
use super::fake_engine::*;
use crate::types::{SamplingParams, StructuredOutput};

/// What is wrong with a form is known before anybody drives; what is right is held to.
#[test]
fn a_form_is_compiled_where_it_is_asked_for() {
    let expected = plain();
    // The model knows no masks, so it must say by itself what may be said: no end of a generation.
    let free = |index: &usize| !expected[*index].ids.contains(&2);
    let index = (0..6).find(free).unwrap();
    let held_to = |regex: &str| {
        let (prompt, params) = request(index);
        let form = Some(StructuredOutput::Regex(regex.into()));
        let params = SamplingParams {
            structured_output: form,
            ..params
        };
        (prompt, params)
    };
    let (mut driver, handle) = engine(&SharedFate::default());
    let (prompt, params) = held_to("(");
    let refused = handle.submit(prompt, params).unwrap_err();
    assert!(matches!(refused, SubmitError::Refused(_)), "{refused}");
    assert_eq!(handle.load().num_requests, 0);
    let (prompt, params) = held_to("([0-9]+ )*");
    let mut streams = [handle.submit(prompt, params).unwrap()];
    assert_eq!(use_up(&mut driver, &mut streams)[0], expected[index]);
    // No token spells an x.
    let (prompt, params) = held_to("x+");
    let refused = handle.submit(prompt, params).unwrap_err();
    assert!(matches!(refused, SubmitError::Refused(_)), "{refused}");
}
