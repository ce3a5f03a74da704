//! What a request for an embedding asks for. Plain data; what it means for hidden states is the
//! engine's pooling.

/// Which of a text's tokens its embedding comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PoolingType {
    /// The mean of the final hidden states of all tokens.
    Mean,
    /// The final hidden state of the last token, which alone has seen all others.
    #[default]
    Last,
}

/// How a text becomes one vector. Names and meaning are vLLM's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolingParams {
    /// Which tokens it comes from.
    pub pooling: PoolingType,
    /// Scale the vector to Euclidean length 1, so that a dot product is a cosine.
    pub normalize: bool,
    /// Keep so many of the first components, before it is normalized: for models trained to be cut
    /// (Matryoshka representations, Kusupati et al. 2022, arXiv:2205.13147). `None` keeps all.
    pub dimensions: Option<usize>,
    /// As [`SamplingParams::cache_salt`](super::SamplingParams::cache_salt).
    pub cache_salt: Option<String>,
    /// As [`SamplingParams::priority`](super::SamplingParams::priority).
    pub priority: i32,
}

impl Default for PoolingParams {
    fn default() -> Self {
        Self {
            pooling: PoolingType::default(),
            normalize: true,
            dimensions: None,
            cache_salt: None,
            priority: 0,
        }
    }
}
