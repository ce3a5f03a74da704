//! The file of keys: what its lines say, and what is wrong with them, which never says what they hold. Knows not what
//! keys open.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, bail};

use crate::text_input::read_text;

/// Most characters of the name of a key's owner.
const LONGEST_OWNER: usize = 64;

/// The first control character of a text, as it may be shown.
pub(super) fn control_of(text: &str) -> Option<String> {
    let found = text.chars().find(|c| c.is_control());
    found.map(|c| format!("U+{:04X}", u32::from(c)))
}

/// The keys of a text, one a line, each with whose it is, which may stand behind it (as a comment or not); else that is
/// the line's number. Lines may end as on any system that ends them with LF.
///
/// # Errors
/// A line that is no key and no comment, or two with one key, by their numbers: what they say is never shown.
fn keys(text: &str) -> anyhow::Result<Vec<(&str, String)>> {
    // Editors put it before the first line, and nobody sees it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut keys = Vec::new();
    let mut lines = HashMap::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        let is_comment = line.starts_with('#');
        // With ends of lines that are CR alone, a comment would swallow what is behind it.
        if let Some(c) = control_of(&line.replace('\t', " ")) {
            bail!(
                "line {number} has a control character ({c}), which no key can have: give one key a line, and end lines \
                 with LF or CRLF"
            );
        }
        if line.is_empty() || is_comment {
            continue;
        }
        let (key, owner) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let owner = owner.trim_start();
        // A key in the place of a name would be told in the log.
        if !owner.is_empty() && !owner.starts_with('#') {
            bail!(
                "line {number} has more than a key, which has no spaces: whose it is may follow as # OWNER"
            );
        }
        let owner = owner.trim_start_matches('#').trim_start();
        if owner.chars().count() > LONGEST_OWNER {
            bail!(
                "line {number} has more than {LONGEST_OWNER} characters behind its key, where a short name may stand"
            );
        }
        let number: u32 = number;
        // Which owner it has, and whether it is taken away with one of them, nobody could tell.
        if let Some(first) = lines.insert(key, number) {
            bail!("lines {first} and {number} have the same key: leave one of them out");
        }
        let owner = if owner.is_empty() {
            number.to_string()
        } else {
            owner.to_owned()
        };
        keys.push((key, owner));
    }
    Ok(keys)
}

/// What `take` makes of the keys of a file, at least one, each with whose it is.
///
/// # Errors
/// It cannot be read, holds no key, or has a line that is wrong.
pub(super) fn read<T>(
    file: &Path,
    take: impl FnOnce(Vec<(&str, String)>) -> T,
) -> anyhow::Result<T> {
    let text = read_text(file).context("--api-key-file")?;
    let name = || format!("--api-key-file {}", file.display());
    let keys = keys(&text).with_context(name)?;
    if keys.is_empty() {
        bail!("{} holds no key: give one a line", name());
    }
    Ok(take(keys))
}

/// The first key of a file such as a server takes, for who asks one.
///
/// # Errors
/// As of such a file.
pub fn first_key(file: &Path) -> anyhow::Result<String> {
    read(file, |keys| keys[0].0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_a_server_reads_the_first_key_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        std::fs::write(&file, "# of the week\nalpha # ann\nbeta\n").unwrap();
        assert_eq!(first_key(&file).unwrap(), "alpha");
        std::fs::write(&file, "# none\n").unwrap();
        let told = format!(
            "--api-key-file {} holds no key: give one a line",
            file.display()
        );
        assert_eq!(first_key(&file).unwrap_err().to_string(), told);
    }

    #[test]
    fn keys_are_what_stands_in_the_lines_and_nothing_invisible() {
        for (text, owners) in [
            ("alpha\nbeta\n", ["1", "2"]),
            ("\u{feff}alpha\nbeta", ["1", "2"]),
            ("alpha\r\n\r\n beta \r\n", ["1", "3"]),
            ("\u{feff}# of\tthe week\r\nalpha\r\nbeta\r", ["2", "3"]),
            (
                "alpha #ann\nbeta\t # bob the builder\n",
                ["ann", "bob the builder"],
            ),
            ("alpha #\nbeta#1", ["1", "2"]),
        ] {
            let read = keys(text).unwrap();
            let names = read.iter().map(|(_, owner)| owner.as_str());
            assert!(names.eq(owners), "{text:?}: {read:?}");
            let secrets: Vec<_> = read.iter().map(|(key, _)| *key).collect();
            let last = if text.ends_with("beta#1") {
                "beta#1"
            } else {
                "beta"
            };
            assert_eq!(secrets, ["alpha", last], "{text:?}");
        }
        for (text, told) in [
            ("alpha\rbeta\r", "line 1 has a control character (U+000D)"),
            (
                "# of the week\ralpha\n",
                "line 1 has a control character (U+000D)",
            ),
            ("alpha\nbe\0ta\n", "line 2 has a control character (U+0000)"),
            (
                "alpha\n\nbe\u{b}ta\n",
                "line 3 has a control character (U+000B)",
            ),
            ("alpha\u{7f}\n", "line 1 has a control character (U+007F)"),
            ("# two\nann beta-alpha\n", "line 2 has more than a key"),
            (
                "alpha # ann\nbeta\n\n alpha # bob\n",
                "lines 1 and 4 have the same key",
            ),
        ] {
            let said = keys(text).unwrap_err().to_string();
            assert!(said.starts_with(told), "{said}");
            assert!(!said.contains("alpha") && !said.contains("be"), "{said}");
        }
    }
}
