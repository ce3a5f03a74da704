//! Which pages of other origins may ask. Without any, browsers keep them all away.

use std::time::Duration;

use anyhow::bail;
use axum::http::{HeaderValue, Method, header};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use url::Url;

use super::request_id;

/// The origins as they stand in headers.
///
/// # Errors
/// Something that is no origin.
pub fn origins(texts: &[String]) -> anyhow::Result<Vec<HeaderValue>> {
    let origin = |text: &String| {
        if text == "*" {
            return Ok(HeaderValue::from_static("*"));
        }
        let is_origin = |url: &Url| url.origin().ascii_serialization() == *text;
        match (Url::parse(text), HeaderValue::from_str(text)) {
            (Ok(url), Ok(value)) if is_origin(&url) => Ok(value),
            _ => bail!("--cors-origin {text:?} is no origin: it is like https://example.org, or *"),
        }
    };
    texts.iter().map(origin).collect()
}

/// The layer that tells browsers, if any origin may ask.
pub fn layer(origins: &[HeaderValue]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let allowed = match origins.iter().any(|origin| origin == "*") {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(origins.to_vec()),
    };
    let layer = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([request_id::HEADER, header::RETRY_AFTER])
        .max_age(Duration::from_secs(600));
    Some(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_no_urls() {
        let parse = |text: &str| origins(&[text.to_owned()]);
        for good in ["*", "https://example.org", "http://localhost:3000"] {
            assert_eq!(parse(good).unwrap()[0], good);
        }
        for bad in [
            "",
            "example.org",
            "https://example.org/",
            "https://a/b",
            "null",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
