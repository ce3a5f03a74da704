//! The Python package index as a source of files: which index, and where a project's wheel lies.
//! Speaks the JSON simple API (PEP 691) and the HTML one (PEP 503). Credentials of the index are
//! shown nowhere. Knows nothing of models.

use std::process::Command;

use serde::Deserialize;
use thiserror::Error;
use ureq::ResponseExt;
use url::Url;

use crate::http::{Credentials, Http, HttpError, host};

/// Longest answer of an index that is read, in bytes; the largest projects' pages have a few MB.
const MAX_PAGE: u64 = 32 << 20;

/// Prints pip's own default index. pip may be absent and still lie in the bundle that fills
/// virtual environments.
const ASK_PIP: &str = "
import glob, os, sys
try:
    import ensurepip
    sys.path += glob.glob(os.path.join(os.path.dirname(ensurepip.__file__), '_bundled', 'pip-*.whl'))
except ImportError:
    pass
sys.path += glob.glob('/usr/share/python-wheels/pip-*.whl')
from pip._internal.models.index import PyPI
print(PyPI.simple_url)
";

/// Why a wheel was not found.
#[derive(Debug, Error)]
pub enum IndexError {
    /// `PIP_INDEX_URL` is not a URL this program can ask.
    #[error(
        "PIP_INDEX_URL is not an http or https URL: set it to the simple API of a package index, as for pip"
    )]
    BadUrl,
    /// There is neither `PIP_INDEX_URL` nor pip.
    #[error(
        "no package index is known: set PIP_INDEX_URL to the simple API of one, or install pip (on Debian and Ubuntu: python3-pip), whose default is then used"
    )]
    Unknown,
    /// The server did not answer.
    #[error("the package index cannot be reached: {0}")]
    Http(#[from] HttpError),
    /// The server answered with an error.
    #[error("the package index at {host} answered with status {status} for {project}: {advice}")]
    Status {
        /// Host of the index.
        host: String,
        /// HTTP status.
        status: u16,
        /// Project asked for.
        project: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// The answer is not a project page.
    #[error(
        "the package index at {host} sent a page that is no simple API ({cause}): check that PIP_INDEX_URL ends as pip wants it, often in /simple"
    )]
    Page {
        /// Host of the index.
        host: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The project has no such wheel there.
    #[error(
        "the package index at {host} has no wheel of {project} {version}; another index can be named in PIP_INDEX_URL"
    )]
    NoWheel {
        /// Host of the index.
        host: String,
        /// Project asked for.
        project: String,
        /// Version asked for.
        version: String,
    },
}

/// A package index.
#[derive(Debug)]
pub struct Index {
    base: Url,
    credentials: Option<Credentials>,
}

/// A wheel an index offers.
#[derive(Debug)]
pub struct Wheel {
    /// File name.
    pub filename: String,
    /// Where it lies. May carry credentials: show [`host`] of it only.
    pub url: Url,
    /// SHA-256 in lower-case hexadecimal, where the index tells it.
    pub sha256: Option<String>,
    /// Length in bytes, where the index tells it.
    pub bytes: Option<u64>,
}

#[derive(Deserialize)]
struct Page {
    files: Vec<PageFile>,
}

#[derive(Deserialize)]
struct PageFile {
    filename: String,
    url: String,
    #[serde(default)]
    hashes: std::collections::BTreeMap<String, String>,
    size: Option<u64>,
}

impl Index {
    /// The index pip would use: `PIP_INDEX_URL`, else pip's own default.
    ///
    /// # Errors
    /// `PIP_INDEX_URL` is no URL, or it is not set and there is no pip to ask.
    pub fn from_env() -> Result<Self, IndexError> {
        if let Ok(url) = std::env::var("PIP_INDEX_URL")
            && !url.trim().is_empty()
        {
            return Self::parse(url.trim());
        }
        for python in ["python3", "python"] {
            let Ok(output) = Command::new(python).args(["-c", ASK_PIP]).output() else {
                continue;
            };
            if output.status.success()
                && let Ok(url) = std::str::from_utf8(&output.stdout)
                && let Ok(index) = Self::parse(url.trim())
            {
                return Ok(index);
            }
        }
        Err(IndexError::Unknown)
    }

    /// An index by the URL of its simple API, which may carry credentials.
    ///
    /// # Errors
    /// It is no http or https URL.
    pub fn parse(url: &str) -> Result<Self, IndexError> {
        let mut base = Url::parse(url).map_err(|_| IndexError::BadUrl)?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(IndexError::BadUrl);
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let credentials = Credentials::take_from(&mut base);
        Ok(Self { base, credentials })
    }

    /// Host of the index: all that may be shown of it.
    pub fn host(&self) -> String {
        host(&self.base)
    }

    /// What the index wants to see, to be sent to its own origin only.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// Finds the wheel of `project` `version` (normalised names, as in a URL).
    ///
    /// # Errors
    /// The index cannot be reached, refuses, sends nonsense, or has no such wheel.
    pub fn wheel(&self, http: &Http, project: &str, version: &str) -> Result<Wheel, IndexError> {
        let url = self
            .base
            .join(&format!("{project}/"))
            .map_err(|_| IndexError::BadUrl)?;
        let accept = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";
        let mut response = http.get(
            &url,
            &[("Accept", accept.to_owned())],
            self.credentials.as_ref(),
        )?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(IndexError::Status {
                host: self.host(),
                status,
                project: project.to_owned(),
                advice: match status {
                    401 | 403 => "its credentials, in PIP_INDEX_URL, are missing or wrong",
                    404 => {
                        "it does not have that project; another index can be named in PIP_INDEX_URL"
                    }
                    _ => "try again later, or name another index in PIP_INDEX_URL",
                },
            });
        }
        // Links are relative to where redirects ended.
        let base = Url::parse(&response.get_uri().to_string()).unwrap_or(url);
        let json = response
            .headers()
            .get("content-type")
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.contains("json"));
        let bad = |cause: String| IndexError::Page {
            host: self.host(),
            cause,
        };
        let text = response
            .body_mut()
            .with_config()
            .limit(MAX_PAGE)
            .read_to_string()
            .map_err(|_| bad("it is cut, too long or not UTF-8".into()))?;
        let files = if json {
            serde_json::from_str::<Page>(&text)
                .map_err(|e| bad(format!("JSON, line {} column {}", e.line(), e.column())))?
                .files
        } else {
            html_links(&text)
        };
        // A wheel's name is `{distribution}-{version}-{python}-{abi}-{platform}.whl` (PEP 427).
        let start = format!("{}-{version}-", project.replace('-', "_")).to_lowercase();
        let file = files
            .into_iter()
            .find(|file| {
                let name = file.filename.to_lowercase();
                name.starts_with(&start)
                    && name.ends_with(".whl")
                    && !name.contains(['/', '\\', '\0'])
            })
            .ok_or_else(|| IndexError::NoWheel {
                host: self.host(),
                project: project.to_owned(),
                version: version.to_owned(),
            })?;
        let url = base
            .join(&file.url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| bad("the wheel's link is no http or https URL".into()))?;
        let sha256 = file
            .hashes
            .get("sha256")
            .map(|hash| hash.to_lowercase())
            .or_else(|| {
                let hash = url.fragment()?.strip_prefix("sha256=")?;
                Some(hash.to_lowercase())
            });
        Ok(Wheel {
            filename: file.filename,
            url,
            sha256,
            bytes: file.size,
        })
    }
}

/// The anchors of a PEP 503 page.
fn html_links(page: &str) -> Vec<PageFile> {
    let mut files = Vec::new();
    // `<a` also opens `<abbr` and its like, which have no `href`.
    for anchor in page.split("<a").skip(1) {
        let Some((attributes, rest)) = anchor.split_once('>') else {
            continue;
        };
        let Some((filename, _)) = rest.split_once('<') else {
            continue;
        };
        let Some((_, value)) = attributes.split_once("href=") else {
            continue;
        };
        let url = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split(quote).next(),
            _ => value.split_ascii_whitespace().next(),
        };
        if let Some(url) = url {
            files.push(PageFile {
                filename: filename.trim().to_owned(),
                url: url.replace("&amp;", "&"),
                hashes: Default::default(),
                size: None,
            });
        }
    }
    files
}
