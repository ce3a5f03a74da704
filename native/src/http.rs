//! One HTTP client with the host's trust: TLS by rustls against the system's certificates (or the
//! bundle `PIP_CERT` names), proxies from the environment. Its errors name a host and a cause and
//! never a URL, because a URL may carry credentials. Knows nothing of indexes and models.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use thiserror::Error;
use ureq::config::RedirectAuthHeaders;
use ureq::http::Response;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};
use url::Url;

/// Why a server could not be asked.
#[derive(Debug, Error)]
pub enum HttpError {
    /// No answer came.
    #[error("{host}: {cause}")]
    Unreachable {
        /// Host that was asked, without anything else of the URL.
        host: String,
        /// What happened.
        cause: String,
    },
    /// The certificate bundle named by the user cannot be used.
    #[error(
        "PIP_CERT names a certificate bundle that cannot be used ({0}): point it to a PEM file, or unset it to trust the system's certificates"
    )]
    Certificates(String),
}

impl HttpError {
    /// Whether asking again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

/// A user's password or token for one origin (scheme, host, port); sent nowhere else.
#[derive(Clone)]
pub struct Credentials {
    origin: url::Origin,
    header: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(hidden)")
    }
}

impl Credentials {
    /// A token for the origin of `url`.
    pub fn bearer(url: &Url, token: &str) -> Self {
        Self {
            origin: url.origin(),
            header: format!("Bearer {token}"),
        }
    }

    /// Takes user and password out of `url`, which then carries none.
    pub fn take_from(url: &mut Url) -> Option<Self> {
        let user = percent_decode(url.username());
        let password = percent_decode(url.password().unwrap_or_default());
        if user.is_empty() && password.is_empty() {
            return None;
        }
        // Both fail only for URLs that cannot carry a host, which then had no user either.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        let mut pair = user;
        pair.push(b':');
        pair.extend(password);
        Some(Self {
            origin: url.origin(),
            header: format!("Basic {}", BASE64.encode(&pair)),
        })
    }
}

/// The client.
pub struct Http {
    agent: Agent,
}

impl Http {
    /// A client trusting what the host trusts.
    ///
    /// # Errors
    /// `PIP_CERT` names a file that is no PEM bundle.
    pub fn new() -> Result<Self, HttpError> {
        let roots = match std::env::var_os("PIP_CERT").filter(|path| !path.is_empty()) {
            Some(path) => {
                let pem =
                    std::fs::read(&path).map_err(|e| HttpError::Certificates(e.to_string()))?;
                let certs: Vec<Certificate<'static>> = parse_pem(&pem)
                    .filter_map(|item| match item {
                        Ok(PemItem::Certificate(cert)) => Some(cert),
                        _ => None,
                    })
                    .collect();
                if certs.is_empty() {
                    return Err(HttpError::Certificates("no certificate in it".into()));
                }
                RootCerts::from(certs)
            }
            None => RootCerts::PlatformVerifier,
        };
        let config = Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .http_status_as_error(false)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .user_agent(concat!("twoclock/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(Duration::from_secs(30)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            // A body may take longer: the download goes on from where an attempt was cut.
            .timeout_recv_body(Some(Duration::from_secs(300)))
            .build();
        Ok(Self {
            agent: config.new_agent(),
        })
    }

    /// Asks for `url`, with `headers`, and with `credentials` if `url` has their origin. Redirections
    /// are followed.
    ///
    /// # Errors
    /// No answer came; an answer with any status is one.
    pub fn get(
        &self,
        url: &Url,
        headers: &[(&str, String)],
        credentials: Option<&Credentials>,
    ) -> Result<Response<Body>, HttpError> {
        self.ask(
            self.agent.get(bare(url).as_str()),
            url,
            headers,
            credentials,
        )
    }

    /// Asks what there is to say of `url` without its content. Redirections are answers.
    ///
    /// # Errors
    /// No answer came; an answer with any status is one.
    pub fn head(
        &self,
        url: &Url,
        credentials: Option<&Credentials>,
    ) -> Result<Response<Body>, HttpError> {
        let request = self.agent.head(bare(url).as_str());
        let request = request.config().max_redirects(0).build();
        self.ask(request, url, &[], credentials)
    }

    /// Sends `body` to `url`, with `headers`, and waits no longer than `timeout` for the whole answer. Redirections are
    /// answers: the headers may hold what is for this host alone.
    ///
    /// # Errors
    /// No answer came; an answer with any status is one.
    pub fn post(
        &self,
        url: &Url,
        headers: &[(&str, String)],
        body: &[u8],
        timeout: Duration,
    ) -> Result<Response<Body>, HttpError> {
        let request = self.agent.post(bare(url).as_str());
        let request = request
            .config()
            .max_redirects(0)
            .timeout_global(Some(timeout))
            .build();
        self.prepare(request, url, headers, None)
            .send(body)
            .map_err(|e| unreachable(url, &e))
    }

    fn ask(
        &self,
        request: ureq::RequestBuilder<ureq::typestate::WithoutBody>,
        url: &Url,
        headers: &[(&str, String)],
        credentials: Option<&Credentials>,
    ) -> Result<Response<Body>, HttpError> {
        self.prepare(request, url, headers, credentials)
            .call()
            .map_err(|e| unreachable(url, &e))
    }

    /// A request with its headers and the credentials of its origin.
    fn prepare<B>(
        &self,
        request: ureq::RequestBuilder<B>,
        url: &Url,
        headers: &[(&str, String)],
        credentials: Option<&Credentials>,
    ) -> ureq::RequestBuilder<B> {
        let mut bare = url.clone();
        let own = Credentials::take_from(&mut bare);
        let credentials = credentials.filter(|c| c.origin == bare.origin());
        let mut request = request
            .config()
            // Never from an encrypted to an open connection, redirects included.
            .https_only(bare.scheme() == "https")
            .build();
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if let Some(c) = own.as_ref().or(credentials) {
            request = request.header("Authorization", &c.header);
        }
        request
    }
}

fn unreachable(url: &Url, error: &ureq::Error) -> HttpError {
    HttpError::Unreachable {
        host: host(url),
        cause: cause(error),
    }
}

/// The URL without user and password, which travel in a header.
fn bare(url: &Url) -> Url {
    let mut bare = url.clone();
    Credentials::take_from(&mut bare);
    bare
}

/// The host a URL names: all that may be shown of it.
pub fn host(url: &Url) -> String {
    url.host_str().unwrap_or("the index").to_owned()
}

const NOT_FOUND: &str = "its name leads nowhere: is this machine connected?";

/// What happened, from the variants whose text holds no URL.
fn cause(error: &ureq::Error) -> String {
    use ureq::Error as E;
    match error {
        E::Io(e) => match e.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                "connection refused: is the address right and the server up?".into()
            }
            // The kind has no name of its own; the text has no address in it.
            _ if e.to_string().contains("lookup address") => NOT_FOUND.into(),
            kind => format!("connection failed ({kind})"),
        },
        E::Timeout(_) => "no answer in time".into(),
        E::HostNotFound => NOT_FOUND.into(),
        E::ConnectionFailed => "connection failed".into(),
        E::TooManyRedirects => "redirected too often".into(),
        E::RequireHttpsOnly(_) => "redirected from https to http, which is refused".into(),
        E::Tls(_) | E::Rustls(_) => {
            "TLS failed: is the server's certificate trusted here? SSL_CERT_FILE or PIP_CERT can name a PEM bundle, and the package ca-certificates brings the usual one".into()
        }
        _ => "the request failed".into(),
    }
}

fn percent_decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        let hex = (byte == b'%')
            .then(|| text.get(i + 1..i + 3))
            .flatten()
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match hex {
            Some(decoded) => {
                out.push(decoded);
                i += 3;
            }
            None => {
                out.push(byte);
                i += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_leave_the_url_and_stay_hidden() {
        let mut url = Url::parse("https://me:p%40ss@example.org/simple").unwrap();
        let credentials = Credentials::take_from(&mut url).unwrap();
        assert_eq!(url.as_str(), "https://example.org/simple");
        assert_eq!(
            credentials.header,
            format!("Basic {}", BASE64.encode("me:p@ss"))
        );
        assert_eq!(format!("{credentials:?}"), "Credentials(hidden)");
        assert!(Credentials::take_from(&mut url).is_none());
    }
}
