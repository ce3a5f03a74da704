//! Models of the Hugging Face hub, through the cache that its other programs share: found there, or
//! brought there file by file. Owns where the cache and the token are and what must be true of a
//! file before it is used. Names, addresses and the cache's layout are the `hf-hub` crate's; bytes
//! come by the client `pull` uses, as the crate's shows the token to hosts that only store files.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use hf_hub::api::RepoInfo;
use thiserror::Error;
use ureq::Body;
use ureq::http::Response;
use url::Url;

use crate::download::{DownloadError, Source, download};
use crate::files::ModelPath;
use crate::http::{Credentials, Http, HttpError, host};
use crate::hub_cache::{HubCache, link};
use crate::hub_choice::{ChoiceError, ModelFileNames, names};
use crate::hub_reference::{HubReference, ReferenceError, is_plain};
use crate::report::Reporter;
use crate::store::human_bytes;

/// Why a model of the hub cannot be had. No text here holds a token or a URL.
#[derive(Debug, Error)]
pub enum HubError {
    /// The reference.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The files it chooses.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// No folder can be named.
    #[error("there is no home folder for the hub's cache: set HF_HOME to a folder for it")]
    NoHome,
    /// `HF_ENDPOINT` is no address.
    #[error("HF_ENDPOINT must be an http:// or https:// address")]
    Endpoint,
    /// Not here, and the network may not be asked.
    #[error(
        "{reference} is not in {} ({missing}), and the network may not be asked (--offline or HF_HUB_OFFLINE)", cache.display()
    )]
    Offline {
        /// What was asked for.
        reference: String,
        /// What the cache lacks.
        missing: String,
        /// The cache.
        cache: PathBuf,
    },
    /// The hub refused.
    #[error("{host} has no {what} that may be seen{}: a private or gated one needs a token with access, in HF_TOKEN or by `hf auth login`, and its terms accepted on its page", if *.token { " with this token" } else { " without a token" })]
    Refused {
        /// The hub.
        host: String,
        /// Repository or file.
        what: String,
        /// A token was sent.
        token: bool,
    },
    /// The hub has no such thing.
    #[error("{host} has no {what}")]
    NotFound {
        /// The hub.
        host: String,
        /// Repository or file.
        what: String,
    },
    /// The hub did not answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A file did not come, or not whole.
    #[error("{file}: {source}")]
    Download {
        /// The file.
        file: String,
        /// What happened.
        source: DownloadError,
    },
    /// The hub cannot answer now.
    #[error("{host} has no time for {what} (status {status}): run the same command again later")]
    Busy {
        /// The hub.
        host: String,
        /// Repository or file.
        what: String,
        /// HTTP status.
        status: u16,
    },
    /// An answer that is not the hub's.
    #[error("{host} answers for {what} as no hub does: {cause}")]
    Senseless {
        /// The hub.
        host: String,
        /// Repository or file.
        what: String,
        /// What is wrong.
        cause: String,
    },
    /// The disk refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
}

/// The hub as this machine sees it.
pub struct Hub {
    cache: HubCache,
    endpoint: Url,
    credentials: Option<Credentials>,
    offline: bool,
}

impl Hub {
    /// By the variables that the hub's other programs know: `HF_ENDPOINT`, `HF_HUB_CACHE`,
    /// `HF_HOME`, `HF_TOKEN`, `HF_TOKEN_PATH`, `HF_HUB_OFFLINE`.
    ///
    /// # Errors
    /// There is no home folder, or an endpoint that is no address.
    pub fn from_env(offline: bool) -> Result<Self, HubError> {
        let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = var("HF_HOME").map(PathBuf::from).or_else(|| {
            let caches = var("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| {
                let home = var("HOME").or_else(|| var("USERPROFILE"))?;
                Some(Path::new(&home).join(".cache"))
            })?;
            Some(caches.join("huggingface"))
        });
        let cache = var("HF_HUB_CACHE")
            .map(PathBuf::from)
            .or_else(|| Some(home.as_ref()?.join("hub")))
            .ok_or(HubError::NoHome)?;
        // The hub's links between files are relative to each other, so the folder is made whole.
        let cache = std::path::absolute(&cache).map_err(at(&cache))?;
        let token = var("HF_TOKEN").or_else(|| {
            let file = var("HF_TOKEN_PATH")
                .map(PathBuf::from)
                .or_else(|| Some(home?.join("token")))?;
            let token = fs::read_to_string(file).ok()?.trim().to_owned();
            (!token.is_empty()).then_some(token)
        });
        let endpoint = var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        let endpoint = Url::parse(&endpoint)
            .ok()
            .filter(|a| matches!(a.scheme(), "http" | "https") && a.has_host())
            .ok_or(HubError::Endpoint)?;
        let credentials = token.map(|token| Credentials::bearer(&endpoint, &token));
        let said = var("HF_HUB_OFFLINE").is_some_and(|v| v != "0");
        Ok(Self {
            cache: HubCache::at(cache),
            endpoint,
            credentials,
            offline: offline || said,
        })
    }

    /// Where a model lies in the cache, after what is missing has been brought there.
    ///
    /// # Errors
    /// [`HubError`].
    pub fn fetch(
        &self,
        reference: &HubReference,
        report: &Reporter,
    ) -> Result<ModelPath, HubError> {
        if self.offline {
            return self.cached(reference);
        }
        let http = Http::new()?;
        let info = match self.info(&http, reference) {
            Ok(info) => info,
            // Without a network what is here already must do; a refusal stays one.
            Err(failed @ HubError::Http(_)) => {
                let Ok(here) = self.cached(reference) else {
                    return Err(failed);
                };
                report.note(&format!(
                    "{failed}\nusing {reference} as it is in {}",
                    self.cache.path().display()
                ));
                return Ok(here);
            }
            Err(e) => return Err(e),
        };
        let files: Vec<String> = info.siblings.into_iter().map(|s| s.rfilename).collect();
        let names = reference.choose(&files)?;
        let commit = info.sha;
        if !is_plain(&commit) {
            return Err(self.senseless(&reference.repo, "its commit is no name"));
        }
        let snapshot = self.cache.snapshot(reference, &commit);
        for file in names.all() {
            // What the cache holds under this commit is what the hub has under it.
            if !snapshot.join(file).is_file() {
                self.bring(&http, reference, &commit, file, report)?;
            }
        }
        self.cache.name(reference, &commit).map_err(at(&snapshot))?;
        Ok(path_of(&snapshot, &names))
    }

    /// What the cache has of a reference.
    fn cached(&self, reference: &HubReference) -> Result<ModelPath, HubError> {
        let missing = |what: String| HubError::Offline {
            reference: reference.to_string(),
            missing: what,
            cache: self.cache.path().to_owned(),
        };
        let Some(snapshot) = self.cache.newest(reference) else {
            return Err(missing(format!(
                "revision {} is not there",
                reference.revision
            )));
        };
        let files = HubCache::files(&snapshot).map_err(at(&snapshot))?;
        let names = reference.choose(&files).map_err(|e| match e {
            // Asked for and not here: the network might have it.
            ChoiceError::NoSuchFile { wanted, found, .. } => missing(format!(
                "of {wanted} nothing is there, but {}",
                names(&found)
            )),
            ChoiceError::NoModel { .. } => missing("no model is there".into()),
            ChoiceError::Parts { file, .. } => missing(format!("a part of {file} is not there")),
            e => e.into(),
        })?;
        Ok(path_of(&snapshot, &names))
    }

    /// What the hub has under a reference's revision.
    fn info(&self, http: &Http, reference: &HubReference) -> Result<RepoInfo, HubError> {
        let what = format!("repository {reference}");
        let url = self.url(&format!("api/{}", reference.repository().api_url()), &what)?;
        let response = http.get(&url, &[], self.credentials.as_ref())?;
        let mut response = self.granted(response, &what)?;
        let body = response.body_mut().with_config().limit(MOST_INFO);
        let body = body.read_to_vec();
        body.ok()
            .and_then(|body| serde_json::from_slice(&body).ok())
            .ok_or_else(|| self.senseless(&what, "its list of files cannot be read"))
    }

    /// Brings one file of a commit into the cache, and holds it against what the hub says of it.
    fn bring(
        &self,
        http: &Http,
        reference: &HubReference,
        commit: &str,
        file: &str,
        report: &Reporter,
    ) -> Result<(), HubError> {
        let url = format!("{}/resolve/{commit}/{file}", reference.repo);
        let url = self.url(&url, file)?;
        let response = self.look(http, &url, file)?;
        let header = |name: &str| response.headers().get(name)?.to_str().ok();
        let etag = header("x-linked-etag").or_else(|| header("etag"));
        let etag = etag.unwrap_or_default();
        let etag = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
        // It becomes a name in the cache.
        if !is_plain(etag) || etag.contains(['/', '.']) {
            return Err(self.senseless(file, "its hash is no name"));
        }
        let linked = header("x-linked-size");
        let bytes: u64 = linked
            .or_else(|| header("content-length"))
            .and_then(|bytes| bytes.parse().ok())
            .ok_or_else(|| self.senseless(file, "its length is not said"))?;

        let blob = self.cache.blob(reference, etag);
        let pointer = self.cache.snapshot(reference, commit).join(file);
        for path in [&blob, &pointer] {
            let folder = path.parent().unwrap_or(path);
            fs::create_dir_all(folder).map_err(at(folder))?;
        }
        let lock = blob.with_extension("lock");
        let locked = File::create(&lock).map_err(at(&lock))?;
        locked.lock().map_err(at(&lock))?;
        // The same content may be here under another commit, or have come while we waited.
        if fs::metadata(&blob).is_ok_and(|m| m.len() == bytes) {
            return link(&blob, &pointer).map_err(at(&pointer));
        }
        report.note(&format!(
            "{file} of {} ({})",
            reference.repo,
            human_bytes(bytes)
        ));
        // The hash of a large file is its SHA-256; that of a small one is Git's.
        let is_sha256 = etag.len() == 64 && etag.bytes().all(|b| b.is_ascii_hexdigit());
        let sha256 = is_sha256.then(|| etag.to_ascii_lowercase());
        let source = Source {
            url: &url,
            credentials: self.credentials.as_ref(),
            bytes: Some(bytes),
            sha256: sha256.as_deref(),
            limit: bytes,
        };
        let part = blob.with_extension("part");
        download(http, &source, &part, report).map_err(|source| HubError::Download {
            file: file.to_owned(),
            source,
        })?;
        fs::rename(&part, &blob).map_err(at(&blob))?;
        link(&blob, &pointer).map_err(at(&pointer))
    }

    /// What the hub says of a file. It may send on to another of its own addresses, as where a
    /// repository was renamed; where it sends on to a store, it has said all before.
    fn look(&self, http: &Http, url: &Url, file: &str) -> Result<Response<Body>, HubError> {
        let mut url = url.clone();
        for _ in 0..MOST_REDIRECTS {
            let response = self.granted(http.head(&url, self.credentials.as_ref())?, file)?;
            let next = (response.headers().get("location"))
                .and_then(|to| url.join(to.to_str().ok()?).ok())
                .filter(|next| response.status().is_redirection() && next.origin() == url.origin());
            match next {
                Some(next) if !response.headers().contains_key("x-linked-etag") => url = next,
                _ => return Ok(response),
            }
        }
        Err(self.senseless(file, "it is sent on and on"))
    }

    fn url(&self, path: &str, what: &str) -> Result<Url, HubError> {
        let mut base = self.endpoint.clone();
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        base.join(path)
            .map_err(|_| self.senseless(what, "it has no address"))
    }

    /// An answer that is neither a refusal nor a failure.
    fn granted<T>(&self, response: Response<T>, what: &str) -> Result<Response<T>, HubError> {
        let (host, what) = (host(&self.endpoint), what.to_owned());
        match response.status().as_u16() {
            200..=399 => Ok(response),
            401 | 403 => Err(HubError::Refused {
                host,
                what,
                token: self.credentials.is_some(),
            }),
            404 => Err(HubError::NotFound { host, what }),
            status @ (408 | 429 | 500..) => Err(HubError::Busy { host, what, status }),
            status => Err(HubError::Senseless {
                host,
                what,
                cause: format!("status {status}"),
            }),
        }
    }

    fn senseless(&self, what: &str, cause: &str) -> HubError {
        HubError::Senseless {
            host: host(&self.endpoint),
            what: what.to_owned(),
            cause: cause.to_owned(),
        }
    }
}

/// Times a file may be sent on to another address of the hub.
const MOST_REDIRECTS: usize = 5;

/// Longest answer about a repository that is read, bytes.
const MOST_INFO: u64 = 16 << 20;

fn path_of(snapshot: &Path, names: &ModelFileNames) -> ModelPath {
    match names {
        ModelFileNames::Gguf(files) => ModelPath::Gguf(snapshot.join(&files[0])),
        ModelFileNames::Folder(_) => ModelPath::Directory(snapshot.to_owned()),
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> HubError + use<> {
    let path = path.to_owned();
    move |source| HubError::Io {
        path: path.clone(),
        source,
    }
}
