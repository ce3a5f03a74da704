//! Which of a hub repository's files make the model that a reference names. Knows no network and no
//! disk.

use thiserror::Error;
use twoclock_core::weights::gguf::PartName;

use crate::hub_reference::{HubReference, is_plain};

/// Files besides the weights that a model folder may have; the first is its mark.
const FOLDER_FILES: [&str; 8] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "modules.json",
    "1_Pooling/config.json",
    "model.safetensors.index.json",
];

/// Most file names an error message lists.
const MOST_NAMES: usize = 40;

/// Why a reference chooses no files.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChoiceError {
    /// The repository has several models.
    #[error(
        "{repo} has several models: name one after a colon, such as hf:{repo}:{example}. It has: {}",
        names(found)
    )]
    Several {
        /// `ORG/REPO`.
        repo: String,
        /// The first of them.
        example: String,
        /// All of them.
        found: Vec<String>,
    },
    /// The repository lacks what was named.
    #[error("{repo} has no model {wanted:?}. It has: {}", names(found))]
    NoSuchFile {
        /// `ORG/REPO`.
        repo: String,
        /// What was named.
        wanted: String,
        /// The models it has.
        found: Vec<String>,
    },
    /// The repository holds no model this program reads.
    #[error(
        "{repo} has neither a .gguf file nor config.json with .safetensors files, so there is no model to run. It has: {}",
        names(found)
    )]
    NoModel {
        /// `ORG/REPO`.
        repo: String,
        /// All files.
        found: Vec<String>,
    },
    /// Parts of a split file are missing.
    #[error("{repo} has only {there} of the {count} parts of {file}")]
    Parts {
        /// `ORG/REPO`.
        repo: String,
        /// First part.
        file: String,
        /// Parts there.
        there: usize,
        /// Parts there must be.
        count: u64,
    },
}

/// A list for people, cut where it gets long.
pub fn names(found: &[String]) -> String {
    let mut text = found.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>();
    if found.len() > MOST_NAMES {
        text.push(format!("and {} more", found.len() - MOST_NAMES));
    }
    if text.is_empty() {
        text.push("nothing".to_owned());
    }
    text.join(", ")
}

/// The files that make a model, none of which leads out of its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelFileNames {
    /// A GGUF file, or all parts of one, first part first.
    Gguf(Vec<String>),
    /// `config.json` and what goes with it.
    Folder(Vec<String>),
}

impl ModelFileNames {
    /// All of them.
    pub fn all(&self) -> &[String] {
        match self {
            Self::Gguf(files) | Self::Folder(files) => files,
        }
    }
}

impl HubReference {
    /// Which of a repository's files this reference means. Names that could lead out of a folder
    /// are as if they were not there.
    ///
    /// # Errors
    /// None, several without one being named, or a split file without all its parts.
    pub fn choose(&self, files: &[String]) -> Result<ModelFileNames, ChoiceError> {
        let files: Vec<String> = files.iter().filter(|f| is_plain(f)).cloned().collect();
        // One name a model: the first part stands for a split one. Projectors of images and
        // importance matrices are files beside models.
        let models: Vec<String> = files
            .iter()
            .filter(|file| {
                let name = base(file).to_ascii_lowercase();
                name.ends_with(".gguf")
                    && !name.contains("mmproj")
                    && !name.contains("imatrix")
                    && PartName::parse(file).is_none_or(|part| part.number == 1)
            })
            .cloned()
            .collect();
        let several = |found: Vec<String>| ChoiceError::Several {
            repo: self.repo.clone(),
            example: found.first().cloned().unwrap_or_default(),
            found,
        };
        if let Some(wanted) = &self.file {
            if files.contains(wanted) && base(wanted).to_ascii_lowercase().ends_with(".gguf") {
                return self.parts(wanted, &files);
            }
            let fitting: Vec<String> = models
                .iter()
                .filter(|file| base(file) == wanted || has_word(base(file), wanted))
                .cloned()
                .collect();
            return match &fitting[..] {
                [] => Err(ChoiceError::NoSuchFile {
                    repo: self.repo.clone(),
                    wanted: wanted.clone(),
                    found: models,
                }),
                [one] => self.parts(one, &files),
                _ => Err(several(fitting)),
            };
        }
        if files.iter().any(|f| f == FOLDER_FILES[0]) {
            let weights = |prefix: &str| -> Vec<String> {
                let of_folder = |f: &&String| {
                    !f.contains('/') && f.starts_with(prefix) && f.ends_with(".safetensors")
                };
                files.iter().filter(of_folder).cloned().collect()
            };
            // Repositories may hold the same weights once more under another name.
            let mut weights = Some(weights("model"))
                .filter(|w| !w.is_empty())
                .unwrap_or_else(|| weights(""));
            if !weights.is_empty() {
                let mut all: Vec<String> = FOLDER_FILES
                    .iter()
                    .filter(|name| files.iter().any(|f| f == *name))
                    .map(|&name| name.to_owned())
                    .collect();
                weights.sort();
                all.append(&mut weights);
                return Ok(ModelFileNames::Folder(all));
            }
        }
        match &models[..] {
            [] => Err(ChoiceError::NoModel {
                repo: self.repo.clone(),
                found: files,
            }),
            [one] => self.parts(one, &files),
            _ => Err(several(models)),
        }
    }

    /// A GGUF file with all its parts.
    fn parts(&self, file: &str, files: &[String]) -> Result<ModelFileNames, ChoiceError> {
        let Some(part) = PartName::parse(file) else {
            return Ok(ModelFileNames::Gguf(vec![file.to_owned()]));
        };
        let mut all: Vec<(u64, String)> = files
            .iter()
            .filter_map(|other| {
                let found = PartName::parse(other)?;
                (found.stem == part.stem && found.count == part.count)
                    .then(|| (found.number, other.clone()))
            })
            .collect();
        all.sort();
        if !all.iter().map(|(n, _)| *n).eq(1..=part.count) {
            return Err(ChoiceError::Parts {
                repo: self.repo.clone(),
                file: file.to_owned(),
                there: all.len(),
                count: part.count,
            });
        }
        Ok(ModelFileNames::Gguf(
            all.into_iter().map(|(_, name)| name).collect(),
        ))
    }
}

/// The name without its folder.
fn base(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Whether `word` stands in `name` between characters that no word has, in whatever case: `Q4_K`
/// is in `tiny-q4_k.gguf` and not in `tiny-Q4_K_M.gguf`.
fn has_word(name: &str, word: &str) -> bool {
    let (name, word) = (name.to_ascii_lowercase(), word.to_ascii_lowercase());
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.match_indices(&word).any(|(at, _)| {
        let before = name[..at].chars().next_back();
        let after = name[at + word.len()..].chars().next();
        !before.is_some_and(inner) && !after.is_some_and(inner)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(reference: &str, files: &[&str]) -> Result<ModelFileNames, ChoiceError> {
        let files: Vec<String> = files.iter().map(|&f| f.to_owned()).collect();
        HubReference::parse(reference)
            .unwrap()
            .unwrap()
            .choose(&files)
    }

    fn gguf(files: &[&str]) -> ModelFileNames {
        ModelFileNames::Gguf(files.iter().map(|&f| f.to_owned()).collect())
    }

    #[test]
    fn a_quantization_is_named_whole() {
        let files = [
            "m-Q4_K.gguf",
            "m-Q4_K_M.gguf",
            "m-q8_0.gguf",
            "mmproj-Q8_0.gguf",
        ];
        assert_eq!(choose("hf:a/b:q4_k_m", &files), Ok(gguf(&files[1..2])));
        assert_eq!(choose("hf:a/b:Q4_K", &files), Ok(gguf(&files[..1])));
        assert_eq!(choose("hf:a/b:Q8_0", &files), Ok(gguf(&files[2..3])));
        assert_eq!(choose("hf:a/b:m-q8_0.gguf", &files), Ok(gguf(&files[2..3])));
        assert!(matches!(
            choose("hf:a/b:Q2_K", &files),
            Err(ChoiceError::NoSuchFile { found, .. }) if found.len() == 3
        ));
        assert!(matches!(
            choose("hf:a/b", &files),
            Err(ChoiceError::Several { found, .. }) if found.len() == 3
        ));
        assert_eq!(choose("hf:a/b", &files[1..2]), Ok(gguf(&files[1..2])));
        assert!(matches!(
            choose("hf:a/b", &["README.md"]),
            Err(ChoiceError::NoModel { .. })
        ));
    }

    #[test]
    fn a_split_file_comes_with_all_its_parts() {
        let files = [
            "q/m-Q8_0-00002-of-00002.gguf",
            "q/m-Q8_0-00001-of-00002.gguf",
            "m-F16-00001-of-00002.gguf",
        ];
        let whole = gguf(&[files[1], files[0]]);
        assert_eq!(choose("hf:a/b:Q8_0", &files), Ok(whole.clone()));
        assert_eq!(choose(&format!("hf:a/b:{}", files[0]), &files), Ok(whole));
        assert!(matches!(
            choose("hf:a/b:F16", &files),
            Err(ChoiceError::Parts {
                there: 1,
                count: 2,
                ..
            })
        ));
    }

    #[test]
    fn a_folder_is_what_is_read_of_it() {
        let files = [
            "README.md",
            "config.json",
            "consolidated.safetensors",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "onnx/model.safetensors",
            "tokenizer.json",
            "../tokenizer_config.json",
            "1_Pooling/config.json",
        ];
        let expected = [files[1], files[7], files[9], files[5], files[3], files[4]];
        assert_eq!(
            choose("hf:a/b", &files),
            Ok(ModelFileNames::Folder(
                expected.iter().map(|&f| f.to_owned()).collect()
            ))
        );
    }
}
