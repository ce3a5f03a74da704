//! Embeddings: requests whose prompt becomes one vector. Owns what is done with the sum of final
//! hidden states that the model runner gives; knows neither how it is computed nor any text.

use super::awaited::Awaited;
use super::core::{EngineCore, EngineOutput};
use super::metrics::RequestShape;
use super::recovery::Recovery;
use super::sampling_check::{check_ids, check_pooling};
use crate::clock::Clock;
use crate::error::Result;
use crate::runner::ExecuteModel;
use crate::sched::{Ahead, Request, RequestError, RequestUpdate};
use crate::types::{PoolingParams, PoolingType, RequestId, TokenId};
use std::collections::BTreeMap;
use std::time::Duration;

/// A prompt's embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Whose.
    pub request_id: RequestId,
    /// The vector: `hidden_size` components, or as many as were asked for.
    pub values: Vec<f32>,
    /// Length of the prompt.
    pub num_prompt_tokens: usize,
    /// Prompt tokens that did not have to be computed, because an earlier request had.
    pub num_cached_tokens: usize,
}

/// A pooling request that is not over.
#[derive(Clone, Debug)]
pub(super) struct Pooling {
    params: PoolingParams,
    num_prompt_tokens: usize,
}

impl Pooling {
    /// The vector that a sum of final hidden states becomes.
    fn finish(&self, sum: &[f32]) -> Vec<f32> {
        let PoolingParams {
            pooling,
            normalize,
            dimensions,
            ..
        } = self.params;
        let divisor = match pooling {
            PoolingType::Mean => self.num_prompt_tokens as f64,
            PoolingType::Last => 1.0,
        };
        let kept = sum.iter().take(dimensions.unwrap_or(sum.len()));
        let mut values: Vec<f64> = kept.map(|v| f64::from(*v) / divisor).collect();
        let length = values.iter().map(|v| v * v).sum::<f64>().sqrt();
        // A vector of zeros has no direction, and stays.
        if normalize && length > 0.0 {
            values.iter_mut().for_each(|v| *v /= length);
        }
        values.into_iter().map(|v| v as f32).collect()
    }
}

impl<R: ExecuteModel, C: Clock> EngineCore<R, C> {
    /// Queues a request for the embedding of a prompt. It is computed among the others, and comes out
    /// of a [`step`](Self::step) as [`EngineOutput::embedding`].
    ///
    /// # Errors
    /// [`RequestError`] for ids the model does not have, a salt or a priority out of
    /// bounds, more dimensions than its hidden states have,
    /// and prompts that could never be computed.
    pub fn add_pooling_request(
        &mut self,
        prompt_token_ids: Vec<TokenId>,
        params: PoolingParams,
    ) -> Result<RequestId, RequestError> {
        let arrival = self.clock.now();
        self.add_pooling(prompt_token_ids, params, Ahead::default(), arrival)
    }

    /// As [`add_pooling_request`](Self::add_pooling_request), behind others that came with it; and when it came.
    pub(super) fn add_pooling(
        &mut self,
        prompt_token_ids: Vec<TokenId>,
        params: PoolingParams,
        ahead: Ahead,
        arrival: Duration,
    ) -> Result<RequestId, RequestError> {
        check_ids("the prompt", &prompt_token_ids, self.vocab_size)?;
        check_pooling(&params)?;
        let hidden_size = self.hidden_size;
        if let Some(dimensions) = params.dimensions
            && !(1..=hidden_size).contains(&dimensions)
        {
            return Err(RequestError::InvalidDimensions {
                dimensions,
                hidden_size,
            });
        }
        let pooling = Pooling {
            num_prompt_tokens: prompt_token_ids.len(),
            params,
        };
        let shape = RequestShape {
            num_prompt_tokens: pooling.num_prompt_tokens,
            max_tokens: 0,
            n: 1,
        };
        let id = RequestId(self.next_id);
        let request = Request::pooling(id, prompt_token_ids, &pooling.params).behind(ahead);
        self.scheduler.add_request(request)?;
        self.next_id += 1;
        self.ledger.open(id, arrival, shape);
        self.pooling.insert(id, pooling);
        Ok(id)
    }

    /// The embedding that an update brings.
    pub(super) fn embedding(&mut self, update: &RequestUpdate) -> Option<Vec<f32>> {
        update.finished.as_ref()?;
        let pooling = self.pooling.remove(&update.request_id)?;
        let sum = update.pooled.as_ref()?;
        Some(pooling.finish(sum))
    }

    /// Adds requests and steps until all of them are computed, in their order. One that is refused or
    /// fails costs the others nothing; what is brought meanwhile to requests added before comes out of
    /// the next [`step`](Self::step).
    ///
    /// # Errors
    /// The device's. The requests added here are then aborted, as they are where the future is dropped.
    pub async fn embed(
        &mut self,
        requests: Vec<(Vec<TokenId>, PoolingParams)>,
    ) -> Result<Vec<Result<Embedding, RequestError>>> {
        self.embed_with(requests, &mut Recovery::none()).await
    }

    /// As [`embed`](Self::embed), through lost devices.
    pub(super) async fn embed_with(
        &mut self,
        requests: Vec<(Vec<TokenId>, PoolingParams)>,
        recovery: &mut Recovery<R>,
    ) -> Result<Vec<Result<Embedding, RequestError>>> {
        let mut answers = Vec::new();
        let mut places = BTreeMap::new();
        for (prompt, params) in requests {
            let num_prompt_tokens = prompt.len();
            let id = self.add_pooling_request(prompt, params);
            if let Ok(id) = id {
                places.insert(id, answers.len());
            }
            answers.push(id.map(|request_id| Embedding {
                request_id,
                values: Vec::new(),
                num_prompt_tokens,
                num_cached_tokens: 0,
            }));
        }
        let mut awaited = Awaited::new(self, places.keys().copied());
        while !places.is_empty() {
            for output in awaited.step(recovery).await? {
                let place = places.get(&output.request_id).copied();
                let place = place.expect("a prompt is embedded once");
                if output.finished.is_some() {
                    places.remove(&output.request_id);
                }
                take(&mut answers[place], output);
            }
        }
        drop(awaited);
        Ok(answers)
    }
}

fn take(answer: &mut Result<Embedding, RequestError>, output: EngineOutput) {
    if let Ok(embedding) = answer {
        embedding.num_cached_tokens = output.num_cached_tokens;
        embedding
            .values
            .extend(output.embedding.into_iter().flatten());
    }
    if let Some(Err(error)) = output.finished {
        *answer = Err(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(params: PoolingParams, sum: &[f32]) -> Vec<f32> {
        let pooling = Pooling {
            params,
            num_prompt_tokens: 4,
        };
        pooling.finish(sum)
    }

    #[test]
    fn a_sum_becomes_a_vector() {
        let raw = |pooling| PoolingParams {
            pooling,
            normalize: false,
            ..PoolingParams::default()
        };
        let sum = [6.0, -8.0, 24.0];
        let mean = finish(raw(PoolingType::Mean), &sum);
        assert_eq!(mean, [1.5, -2.0, 6.0]);
        assert_eq!(finish(raw(PoolingType::Last), &sum), sum);
        // Cut first, then scaled: its length is 1.
        for pooling in [PoolingType::Mean, PoolingType::Last] {
            let params = PoolingParams {
                normalize: true,
                dimensions: Some(2),
                ..raw(pooling)
            };
            assert_eq!(finish(params, &sum), [0.6, -0.8]);
        }
        let zeros = finish(PoolingParams::default(), &[0.0; 3]);
        assert_eq!(zeros, [0.0; 3]);
    }
}
