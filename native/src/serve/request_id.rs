//! Names of requests: what a client calls one, else a name made here; on the answer and in the log.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// The header a name comes and goes in.
pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Longest name that is taken from a client, bytes.
const LONGEST: usize = 128;

/// A request's name: visible ASCII.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId {
    name: String,
    /// The client called it so, and may call others so.
    is_given: bool,
}

impl RequestId {
    /// The name as a header.
    pub fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.name).unwrap_or(HeaderValue::from_static("-"))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// What its answer is called, and the calls in it by that: the same where no other request has it, else a new name.
    /// Whoever traces gives one name to all requests of a conversation, in which calls must differ.
    pub fn of_answer(&self, numbers: &Numbers) -> String {
        match self.is_given {
            true => numbers.name(),
            false => self.name.clone(),
        }
    }
}

/// Makes numbers that nobody guesses and that do not come twice, for names and for seeds.
#[derive(Debug, Default)]
pub struct Numbers {
    /// Random from the host, once.
    key: RandomState,
    next: AtomicU64,
}

impl Numbers {
    /// The next one.
    pub fn next(&self) -> u64 {
        let mut hasher = self.key.build_hasher();
        hasher.write_u64(self.next.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }

    /// A name of 32 hexadecimal digits.
    pub fn name(&self) -> String {
        format!("{:016x}{:016x}", self.next(), self.next())
    }

    /// The name a request gave itself, where that can be shown again; else a new one.
    pub fn request_id(&self, headers: &HeaderMap) -> RequestId {
        let given = headers.get(HEADER).and_then(|value| value.to_str().ok());
        let fits = |name: &&str| {
            !name.is_empty() && name.len() <= LONGEST && name.bytes().all(|b| b.is_ascii_graphic())
        };
        let given = given.filter(fits);
        RequestId {
            name: given.map_or_else(|| self.name(), str::to_owned),
            is_given: given.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_where_it_can_be_shown() {
        let numbers = Numbers::default();
        let name = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, HeaderValue::from_str(value).unwrap());
            numbers.request_id(&headers).as_str().to_owned()
        };
        assert_eq!(name("abc-1"), "abc-1");
        let long = "x".repeat(129);
        for unfit in ["", "a b", &long] {
            assert_eq!(name(unfit).len(), 32, "{unfit}");
        }
        let made = numbers.request_id(&HeaderMap::new());
        assert_ne!(made, numbers.request_id(&HeaderMap::new()));
        assert_eq!(made.header().to_str().unwrap(), made.as_str());
        assert_eq!(made.of_answer(&numbers), made.as_str());
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_static("trace-1"));
        let given = [numbers.request_id(&headers), numbers.request_id(&headers)];
        assert_eq!(given[0], given[1]);
        assert_ne!(given[0].of_answer(&numbers), given[1].of_answer(&numbers));
    }
}
