//! Who is let in: keys from a file, which may be read anew, or the environment. Only digests are kept. They are
//! compared in constant time and shown nowhere.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::bail;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};

use super::api_error::ApiError;
use super::app::App;
use super::key_file;
use super::request_record::RequestRecord;
use crate::output;

/// Where a key may stand.
const VARIABLE: &str = "TWOCLOCK_API_KEY";
/// What needs no key: whether the server is well tells nobody more than that, and the page holds nothing.
const OPEN: [&str; 2] = ["/", "/health"];

/// A key, of which no more is kept than that.
struct Key {
    digest: [u8; 32],
    /// Whose it is, as the file says, or else its line there.
    owner: Arc<str>,
}

/// Whom requests are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Anyone: it needs no key.
    Anyone,
    /// Who has a key: its name, or the line where it stands.
    Owner(Arc<str>),
}

/// The keys that are let in; without any, everybody is. Clones share them.
#[derive(Clone, Default)]
pub struct ApiKeys {
    keys: Arc<RwLock<Arc<[Key]>>>,
    /// Where they came from, if from a file.
    file: Option<PathBuf>,
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.num())
    }
}

impl ApiKeys {
    /// The keys of a file, one a line, or else that of the environment.
    ///
    /// # Errors
    /// A file that cannot be read or holds no key, or an empty variable: an operator who asks for keys does
    /// not want everybody let in.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(file) = file else {
            return match env::var(VARIABLE) {
                Ok(key) if key.trim().is_empty() => {
                    bail!("{VARIABLE} is empty: give it a key, or unset it to let everybody in")
                }
                Ok(key) => {
                    let key = key.trim();
                    if let Some(c) = key_file::control_of(key) {
                        bail!("{VARIABLE} has a control character ({c}), which no header can have");
                    }
                    Ok(Self::of([key]))
                }
                Err(env::VarError::NotPresent) => Ok(Self::default()),
                Err(env::VarError::NotUnicode(_)) => bail!("{VARIABLE} is not UTF-8"),
            };
        };
        Ok(Self {
            keys: Arc::new(RwLock::new(read(file)?)),
            file: Some(file.to_owned()),
        })
    }

    /// Reads the file anew, if they came from one; requests from now on are held against what it has. Says in the log
    /// what became of that. Where it cannot be read or holds no key, the keys stay as they were.
    pub fn reread(&self) {
        let Some(file) = &self.file else {
            tracing::info!("the keys stay as they are: there is no --api-key-file to read anew");
            return;
        };
        match read(file) {
            Ok(read) => {
                let keys = read.len();
                *self.keys.write().unwrap_or_else(PoisonError::into_inner) = read;
                tracing::info!(keys, "the keys are read anew");
            }
            Err(error) => {
                let error_message = output::sentence(&error);
                tracing::error!(error_message, "the keys stay as they were");
            }
        }
    }

    /// These keys.
    pub fn of<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            keys: Arc::new(RwLock::new(digests(
                (1_u32..)
                    .zip(keys)
                    .map(|(line, key)| (key, line.to_string())),
            ))),
            file: None,
        }
    }

    fn keys(&self) -> Arc<[Key]> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&keys)
    }

    /// How many there are.
    pub fn num(&self) -> usize {
        self.keys().len()
    }

    /// Whether nobody needs a key.
    pub fn is_open(&self) -> bool {
        self.keys().is_empty()
    }

    /// Which of them this is. Takes the same time whatever it is like.
    fn find(&self, key: &[u8]) -> Option<Sender> {
        let digest: [u8; 32] = Sha256::digest(key).into();
        let keys = self.keys();
        // From 1; 0 is none.
        let mut found = 0;
        for (number, known) in (1..).zip(&*keys) {
            found.conditional_assign(&number, known.digest[..].ct_eq(&digest[..]));
        }
        let key = keys.get(usize::try_from(found).ok()?.checked_sub(1)?)?;
        Some(Sender::Owner(Arc::clone(&key.owner)))
    }

    /// Who is let in with these headers, if anybody: `Authorization: Bearer KEY`, or `x-api-key: KEY` as Anthropic's
    /// clients have it.
    fn admit(&self, headers: &HeaderMap) -> Option<Sender> {
        if self.is_open() {
            return Some(Sender::Anyone);
        }
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
            let (scheme, key) = value.as_bytes().split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
        });
        let own = headers.get("x-api-key").map(|value| value.as_bytes());
        let given = bearer.into_iter().chain(own);
        given.filter_map(|key| self.find(key)).next()
    }
}

fn digests<'a>(keys: impl IntoIterator<Item = (&'a str, String)>) -> Arc<[Key]> {
    let keys = keys.into_iter().map(|(key, owner)| Key {
        digest: Sha256::digest(key).into(),
        owner: owner.into(),
    });
    keys.collect()
}

/// The keys of a file, one a line.
fn read(file: &Path) -> anyhow::Result<Arc<[Key]>> {
    let keys = key_file::read(file, |keys| digests(keys))?;
    #[cfg(unix)]
    if let Ok(metadata) = std::fs::metadata(file) {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o007 != 0 {
            let (file, mode) = (file.display(), format!("{mode:o}"));
            tracing::warn!(%file, mode, "every user of this machine has access to the file with the keys: chmod 600");
        }
    }
    Ok(keys)
}

/// Lets in who has a key.
pub async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let is_open = OPEN.contains(&request.uri().path()) || request.method() == Method::OPTIONS;
    let sender = app.keys.admit(request.headers());
    let sender = sender.or(is_open.then_some(Sender::Anyone));
    if let Some(sender) = sender {
        RequestRecord::of(&request).admit(sender);
        return next.run(request).await;
    }
    let said = "there is no such API key, or none was given: send it as Authorization: Bearer KEY, \
                or as x-api-key: KEY";
    ApiError::new(StatusCode::UNAUTHORIZED, said)
        .code("invalid_api_key")
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_key_opens_and_nothing_else_does() {
        let keys = ApiKeys::of(["alpha", "beta"]);
        let admit = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            keys.admit(&headers)
        };
        let owner = |name: &str| Some(Sender::Owner(name.into()));
        assert_eq!(admit("authorization", "Bearer alpha"), owner("1"));
        assert_eq!(admit("authorization", "bearer beta"), owner("2"));
        assert_eq!(admit("x-api-key", "beta"), owner("2"));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "alpha",
            "Bearer alph",
            "Bearer alpha ",
            "Basic alpha",
        ] {
            assert_eq!(admit("authorization", wrong), None, "{wrong}");
        }
        assert_eq!(keys.admit(&HeaderMap::new()), None);
        let nobody_asks = ApiKeys::default().admit(&HeaderMap::new());
        assert_eq!(nobody_asks, Some(Sender::Anyone));
        assert_eq!(format!("{keys:?}"), "2 keys");
    }

    #[test]
    fn keys_are_read_anew_and_a_bad_file_changes_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |text: &str| std::fs::write(file.path(), text).unwrap();
        write("# of the first week\n alpha \n\nbeta\n");
        let keys = ApiKeys::load(Some(file.path())).unwrap();
        let shared = keys.clone();
        let are = |owners: [&str; 3]| {
            let known = ["alpha", "beta", "gamma"].map(|key| shared.find(key.as_bytes()));
            let owner = |name: &str| (!name.is_empty()).then(|| Sender::Owner(name.into()));
            assert_eq!(known, owners.map(owner));
        };
        are(["2", "4", ""]);
        write("beta # ann\ngamma\n");
        are(["2", "4", ""]);
        keys.reread();
        are(["", "ann", "2"]);
        for wrong in ["", "# none\n", "beta\rgamma\n", "gamma\ngamma\n"] {
            write(wrong);
            keys.reread();
            are(["", "ann", "2"]);
        }
        std::fs::write(file.path(), b"\xff").unwrap();
        keys.reread();
        are(["", "ann", "2"]);
        std::fs::remove_file(file.path()).unwrap();
        keys.reread();
        are(["", "ann", "2"]);
        // Without a file there is nothing to read.
        let given = ApiKeys::of(["alpha"]);
        given.reread();
        assert_eq!(given.find(b"alpha"), Some(Sender::Owner("1".into())));
    }
}
