//! The paths of the server, for those who count and describe them. Knows not who answers them.

/// Paths of the server, as its counts call them.
pub const PATHS: [&str; 16] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/v1/models",
    "/v1/models/{model}",
    "/tokenize",
    "/detokenize",
    "/health",
    "/metrics",
    "/version",
    "/get_load",
    "/steps",
    "/openapi.json",
];
