//! Requests by example: how they end, which of their blocks are named, what is found for them.

use super::*;

fn request(params: SamplingParams) -> Request {
    Request::new(RequestId(0), vec![5, 6], params, &[2])
}

#[test]
fn ends_at_eos_and_stop_ids_without_keeping_them() {
    let params = SamplingParams {
        stop_token_ids: vec![9],
        ..SamplingParams::default()
    };
    let mut r = request(params.clone());
    assert_eq!(r.append_token(7, 100), None);
    assert_eq!(r.append_token(9, 100), Some(FinishReason::Stop));
    assert_eq!(r.append_token(2, 100), Some(FinishReason::Stop));
    assert_eq!(r.output_token_ids(), [7]);
    let mut r = request(SamplingParams {
        ignore_eos: true,
        ..params
    });
    assert_eq!(r.append_token(2, 100), None);
    assert_eq!(r.append_token(9, 100), Some(FinishReason::Stop));
    assert_eq!(r.output_token_ids(), [2]);
}

#[test]
fn blocks_are_named_as_they_fill() {
    let new = |cache_salt: Option<&str>| {
        let params = SamplingParams {
            cache_salt: cache_salt.map(str::to_owned),
            ..SamplingParams::default()
        };
        request(params)
    };
    let mut r = new(None);
    r.hash_blocks(2, "");
    let root = BlockHash::root("", None);
    assert_eq!(r.block_hashes(), [root.chain(&[5, 6])]);
    for id in [7, 8, 9] {
        r.append_token(id, 100);
    }
    r.hash_blocks(2, "");
    let first = root.chain(&[5, 6]);
    assert_eq!(r.block_hashes(), [first, first.chain(&[7, 8])]);
    let mut salted = new(Some("a"));
    salted.hash_blocks(2, "");
    assert_ne!(salted.block_hashes()[0], first);
}

#[test]
fn what_must_be_computed_is_not_looked_for() {
    let mut r = request(SamplingParams::default());
    assert_eq!(r.max_prefix_hit(), 1);
    r.append_token(7, 100);
    assert_eq!(r.max_prefix_hit(), 2);
    Arc::make_mut(&mut r.params).prompt_logprobs = Some(0);
    assert_eq!(r.max_prefix_hit(), 0);
    r.num_prompt_logprobs = 1;
    assert_eq!(r.max_prefix_hit(), 2);
}

#[test]
fn ends_at_either_length() {
    let params = SamplingParams {
        max_tokens: 2,
        ..SamplingParams::default()
    };
    let mut r = request(params.clone());
    assert_eq!(r.max_num_cached_tokens(100), 3);
    assert_eq!(r.append_token(7, 100), None);
    assert_eq!(r.append_token(7, 100), Some(FinishReason::Length));
    let mut r = request(params);
    assert_eq!(r.max_num_cached_tokens(3), 2);
    assert_eq!(r.append_token(7, 3), Some(FinishReason::Length));
}

#[test]
fn nothing_is_scheduled_behind_what_is_drawn_in_vain() {
    let limited = |max_tokens, params: SamplingParams| {
        let mut r = request(SamplingParams {
            max_tokens,
            ..params
        });
        // Its prompt is computed, and its first token is being drawn.
        (r.num_scheduled_tokens, r.num_output_placeholders) = (2, 1);
        r
    };
    let params = SamplingParams::default;
    assert_eq!(limited(2, params()).num_new_tokens(100), 1);
    assert_eq!(limited(1, params()).num_new_tokens(100), 0);
    assert_eq!(limited(2, params()).num_new_tokens(3), 0);
    let history = |params: SamplingParams| limited(9, params).num_new_tokens(100) == 0;
    assert!(history(SamplingParams {
        repetition_penalty: 1.1,
        ..params()
    }));
    assert!(history(SamplingParams {
        bad_words: vec![vec![5], vec![5, 6]],
        ..params()
    }));
    // What is known without the tokens: how many there are.
    assert!(!history(SamplingParams {
        min_tokens: 4,
        logit_bias: vec![(3, 1.0)],
        bad_words: vec![vec![5]],
        ..params()
    }));
    let mut known = limited(9, params());
    (known.num_computed_tokens, known.num_scheduled_tokens) = (2, 0);
    known.num_output_placeholders = 0;
    known.append_token(7, 100);
    assert_eq!(known.num_new_tokens(100), 1);
}

#[test]
fn an_embedding_is_as_urgent_as_it_is_asked_for() {
    let wanted = PoolingParams {
        priority: -3,
        ..PoolingParams::default()
    };
    let urgent = Request::pooling(RequestId(1), vec![5, 6], &wanted);
    assert_eq!(urgent.params().priority, -3);
}
