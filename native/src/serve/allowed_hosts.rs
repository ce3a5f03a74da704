//! By which names a server may be called. A web page may have its own name lead to this machine once a browser
//! has loaded it (DNS rebinding) and then ask as if the server were its own: what gives it away is that name in
//! the `Host` header. Knows no socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::bail;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::api_error::ApiError;
use super::app::App;
use crate::output;

/// Whom a request calls.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    /// In small letters, without the dot that may end it.
    Name(String),
}

impl Host {
    /// Reads `HOST` or `HOST:PORT`.
    fn read(text: &str) -> Option<Self> {
        let authority = Authority::from_str(text).ok()?;
        if text.contains('@') {
            return None;
        }
        let host = authority.host();
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        if let Some(inner) = inner {
            let address = Ipv6Addr::from_str(inner).ok()?;
            return Some(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        if let Ok(address) = Ipv4Addr::from_str(host) {
            return Some(Self::Address(IpAddr::V4(address)));
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        (!name.is_empty()).then_some(Self::Name(name))
    }

    /// Whether it never leads anywhere but to this machine: browsers ask nobody for names below localhost.
    fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        }
    }
}

/// Why names are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Only this machine reaches it, without keys.
    Private,
    /// Names were given.
    Named,
}

/// The names a server answers to.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    /// Beside those of loopback; `None` is any.
    named: Option<(Why, Vec<Host>)>,
}

impl AllowedHosts {
    /// Those of a server that listens at `bound`, which was called `host`, and was given `names` (`--allowed-host`).
    /// Without names, whoever has keys (`!is_open`), or listens beyond this machine, is called as anybody likes;
    /// with `*` among them too.
    ///
    /// # Errors
    /// A name that is none.
    pub fn new(bound: IpAddr, host: &str, is_open: bool, names: &[String]) -> anyhow::Result<Self> {
        let mut named = vec![Host::Address(bound.to_canonical())];
        named.extend(Host::read(host));
        for name in names.iter().filter(|name| *name != "*") {
            match Host::read(name) {
                Some(host) => named.push(host),
                None => bail!("--allowed-host {name:?} is no host: it is like example.org, or *"),
            }
        }
        let any = names.iter().any(|name| name == "*");
        let is_private = is_open && bound.to_canonical().is_loopback();
        let why = match (any, names.is_empty()) {
            (true, _) => None,
            (false, false) => Some(Why::Named),
            (false, true) => is_private.then_some(Why::Private),
        };
        Ok(Self {
            named: why.map(|why| (why, named)),
        })
    }

    fn has(&self, host: Option<&Host>) -> bool {
        let Some((_, named)) = &self.named else {
            return true;
        };
        host.is_some_and(|host| host.is_loopback() || named.contains(host))
    }

    /// What is wrong with the names in a request. Without any it comes from no browser.
    fn refuse(&self, request: &Request) -> Option<ApiError> {
        let headers = request.headers().get_all(header::HOST).into_iter();
        let texts = headers.map(HeaderValue::to_str).map(Result::ok);
        let target = request.uri().authority().map(|a| Some(a.as_str()));
        let wrong = target
            .into_iter()
            .chain(texts)
            .find(|text| !self.has(text.and_then(Host::read).as_ref()))?;
        let name = output::beginning(wrong.unwrap_or_default());
        let said = match self.named.as_ref()?.0 {
            Why::Private => format!(
                "this server is not called {name:?}: without keys it answers to localhost alone, so that no web page \
                 reaches it; start it with --allowed-host and that name, or with keys (--api-key-file)"
            ),
            Why::Named => format!(
                "this server is not called {name:?}: it answers to localhost and the names it was given alone; start \
                 it with --allowed-host and that name too"
            ),
        };
        Some(ApiError::new(StatusCode::FORBIDDEN, said).code("host_not_allowed"))
    }
}

/// Lets in who calls the server by a name of its own.
pub async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.allowed_hosts.refuse(&request) {
        None => next.run(request).await,
        Some(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(bound: &str, is_open: bool, names: &[&str]) -> AllowedHosts {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        AllowedHosts::new(bound.parse().unwrap(), "my.lan", is_open, &names).unwrap()
    }

    fn admits(hosts: &AllowedHosts, host: &str) -> bool {
        let request = Request::builder().header("host", host);
        let request = request.body(axum::body::Body::empty()).unwrap();
        hosts.refuse(&request).is_none()
    }

    #[test]
    fn a_page_does_not_reach_it_by_a_name_of_its_own() {
        let local = hosts("127.0.0.1", true, &[]);
        for good in [
            "localhost:8000",
            "LocalHost.",
            "app.localhost:1",
            "127.0.0.1:8000",
            "127.9.9.9",
            "[::1]:8000",
            "[::ffff:127.0.0.1]",
            "my.lan:8000",
        ] {
            assert!(admits(&local, good), "{good}");
        }
        for bad in [
            "evil.example:8000",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example@localhost",
            "localhost@evil.example",
            "192.168.0.1",
            "0.0.0.0:8000",
            "[::2]",
            "[::1",
            "",
            "a b",
            "é",
        ] {
            assert!(!admits(&local, bad), "{bad}");
        }
        // Whoever knows no name is no browser; each name counts.
        let request = |hosts: &[&str], uri: &str| {
            let mut request = Request::builder().uri(uri);
            for host in hosts {
                request = request.header("host", *host);
            }
            local.refuse(&request.body(axum::body::Body::empty()).unwrap())
        };
        assert_eq!(request(&[], "/"), None);
        assert!(request(&["localhost", "evil.example"], "/").is_some());
        assert!(request(&["localhost"], "http://evil.example/").is_some());
    }

    #[test]
    fn it_is_checked_where_that_matters_or_was_asked_for() {
        let other = "other.example";
        for (bound, is_open, names, admitted) in [
            ("127.0.0.1", true, &[][..], false),
            ("::1", true, &[], false),
            ("127.0.0.1", false, &[], true),
            ("0.0.0.0", true, &[], true),
            ("192.168.0.9", true, &[], true),
            ("127.0.0.1", true, &["*"], true),
            ("127.0.0.1", true, &["OTHER.example"], true),
            ("0.0.0.0", false, &["a.example"], false),
        ] {
            let hosts = hosts(bound, is_open, names);
            assert_eq!(
                admits(&hosts, other),
                admitted,
                "{bound} {is_open} {names:?}"
            );
            assert!(admits(&hosts, "localhost"));
            let request = Request::builder().header("host", other);
            let request = request.body(axum::body::Body::empty()).unwrap();
            if let Some(error) = hosts.refuse(&request) {
                let speaks_of_keys = error.message.contains("keys");
                assert_eq!(speaks_of_keys, names.is_empty(), "{}", error.message);
            }
        }
        let bad = ["http://a.example/".to_owned()];
        assert!(AllowedHosts::new(Ipv4Addr::LOCALHOST.into(), "a", true, &bad).is_err());
    }
}
