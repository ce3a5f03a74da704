//! The page at `/`: a small chat and a live view, one file that asks this server alone. Owns what the page may
//! do; it holds no key and no data, so that it is shown to everybody.

use std::sync::LazyLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};

/// The page.
const PAGE: &str = include_str!("index.html");

/// What a browser lets the page do: run its own script and style, known by their digests, and ask the server
/// it came from. Whatever a model writes, nothing else of the page runs.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let digest = |element| {
        let text = inside(PAGE, element).unwrap_or_default();
        BASE64.encode(Sha256::digest(text))
    };
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        digest("script"),
        digest("style"),
    )
});

/// The text of the page's one element of this name.
fn inside<'a>(page: &'a str, element: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("<{element}>"))?;
    Some(rest.split_once(&format!("</{element}>"))?.0)
}

/// `/`.
pub async fn page() -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, PAGE).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_answers_are_drawn_is_the_servers_choice_at_first() {
        let field = PAGE
            .split("<input ")
            .find(|tag| tag.starts_with("id=\"temperature\""));
        let (field, _) = field.unwrap().split_once('>').unwrap();
        assert!(
            field.contains("placeholder=\"default\"") && !field.contains("value="),
            "{field}"
        );
    }

    #[test]
    fn the_page_asks_nobody_else_and_writes_no_markup() {
        for element in ["script", "style"] {
            assert_eq!(PAGE.matches(&format!("<{element}")).count(), 1);
            assert!(inside(PAGE, element).is_some_and(|text| text.len() > 500));
        }
        let script = inside(PAGE, "script").unwrap();
        for way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ] {
            assert!(!script.contains(way), "{way}");
        }
        // Its style and its handlers stand where their digests cover them.
        for attribute in [" style=", " onclick=", " onload=", " src=", " href="] {
            assert!(!PAGE.contains(attribute), "{attribute}");
        }
        let outside = PAGE.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http://") && !outside.contains("https://"));
        assert!(POLICY.contains("default-src 'none'") && POLICY.matches("sha256-").count() == 2);
    }
}
