//! Models split over several GGUF files, `NAME-00001-of-00003.gguf` and so on: the first holds the
//! metadata, each its own tensors. Owns how the parts are found and held against each other.

use std::collections::HashSet;
use std::fmt;

use super::Gguf;
use crate::weights::WeightsError;
use crate::weights::safetensors::open;
use crate::weights::source::ModelFiles;

/// Keys of a part: its number from 0, the number of parts, and of tensors in all of them.
const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// The name of a part, `STEM-00001-of-00003.gguf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartName<'a> {
    /// What all parts' names begin with, folders included.
    pub stem: &'a str,
    /// From 1.
    pub number: u64,
    /// Parts there are.
    pub count: u64,
}

impl<'a> PartName<'a> {
    /// Takes a file name apart; `None` for what is no part's.
    pub fn parse(file: &'a str) -> Option<Self> {
        let (rest, count) = file.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| -> Option<u64> {
            let five = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
            five.then(|| text.parse().ok())?
        };
        Some(Self {
            stem,
            number: digits(number)?,
            count: digits(count)?,
        })
    }
}

impl fmt::Display for PartName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stem,
            number,
            count,
        } = self;
        write!(f, "{stem}-{number:05}-of-{count:05}.gguf")
    }
}

impl Gguf {
    /// Parts the model is split into; 1 where it is not.
    ///
    /// # Errors
    /// [`WeightsError::Malformed`] for a count that is none.
    pub fn num_parts(&self) -> Result<u64, WeightsError> {
        match self.metadata.get(COUNT) {
            None => Ok(1),
            // Writers that do not split may say 0.
            Some(_) => Ok(self.number(COUNT)?.max(1)),
        }
    }

    /// Reads the head of a model of one file, or of all the files of a split one, any of which may
    /// be named. Tensors come in the order of the parts, the metadata of the first.
    ///
    /// # Errors
    /// As [`Gguf::read`]; [`WeightsError::MissingFile`] for a part that is not there, and
    /// [`WeightsError::Malformed`] for parts that do not belong together.
    pub fn read_parts(files: &dyn ModelFiles, file: &str) -> Result<Self, WeightsError> {
        let named = Self::read(open(files, file, "check the path")?)?;
        let Some(name) = named.part_name(file)? else {
            return Ok(named);
        };
        let mut whole = read_part(files, name, 1)?;
        // At most what five digits say; every part is a file that was opened.
        for number in 2..=name.count {
            let next = read_part(files, name, number)?;
            let at = whole.sources.len();
            whole.sources.push(next.source);
            whole
                .tensors
                .extend(next.tensors.into_iter().map(|tensor| super::GgufTensor {
                    source: at,
                    ..tensor
                }));
        }
        let mut names = HashSet::new();
        if let Some(twice) = whole
            .tensors
            .iter()
            .find(|t| !names.insert(t.name.as_str()))
        {
            let file = whole.sources[twice.source].name();
            let field = format!("tensor {}", twice.name);
            let found = "also in an earlier part";
            let expected = "every tensor is in one of them";
            return Err(WeightsError::malformed(file, field, found, expected));
        }
        if whole.metadata.get(TENSORS).is_some() {
            whole.expect(TENSORS, whole.tensors.len() as u64)?;
        }
        Ok(whole)
    }

    /// Reads the head of the file that has the metadata: the one that is named, or the first part of
    /// the split model that it is a part of.
    ///
    /// # Errors
    /// As [`Gguf::read_parts`], of those two files.
    pub fn read_first_part(files: &dyn ModelFiles, file: &str) -> Result<Self, WeightsError> {
        let named = Self::read(open(files, file, "check the path")?)?;
        if named.num_parts()? == 1 || named.number(NUMBER)? == 0 {
            return Ok(named);
        }
        match named.part_name(file)? {
            None => Ok(named),
            Some(name) => read_part(files, name, 1),
        }
    }

    /// The file's name taken apart; `None` where the file is a whole model.
    fn part_name<'a>(&self, file: &'a str) -> Result<Option<PartName<'a>>, WeightsError> {
        let count = self.num_parts()?;
        if count == 1 {
            return Ok(None);
        }
        let name = PartName::parse(file);
        match name.filter(|name| name.count == count && (1..=count).contains(&name.number)) {
            Some(name) => Ok(Some(name)),
            None => {
                let example = PartName {
                    stem: "NAME",
                    number: 1,
                    count,
                };
                let expected =
                    format!("such a file is called like {example}; give it its name back");
                Err(WeightsError::malformed(file, COUNT, count, expected))
            }
        }
    }

    fn number(&self, key: &str) -> Result<u64, WeightsError> {
        let file = self.source.name();
        let value = self.metadata.get(key);
        let value = value.ok_or_else(|| WeightsError::MissingField {
            file: file.to_owned(),
            field: key.to_owned(),
            remedy: "a part of a split model has it; download the file again".to_owned(),
        })?;
        value.as_u64().ok_or_else(|| {
            WeightsError::malformed(file, key, value, "it must be a whole number, 0 or more")
        })
    }

    fn expect(&self, key: &str, expected: u64) -> Result<(), WeightsError> {
        let found = self.number(key)?;
        if found == expected {
            return Ok(());
        }
        Err(WeightsError::malformed(
            self.source.name(),
            key,
            found,
            format!("it must be {expected}; the files do not belong together"),
        ))
    }
}

/// Reads the head of one part of the model that `name` is a part of.
fn read_part(
    files: &dyn ModelFiles,
    name: PartName<'_>,
    number: u64,
) -> Result<Gguf, WeightsError> {
    let PartName { count, .. } = name;
    let file = PartName { number, ..name }.to_string();
    let remedy = format!("the model is split into {count} files; bring all into one folder");
    let part = Gguf::read(open(files, &file, &remedy)?)?;
    part.expect(NUMBER, number - 1)?;
    part.expect(COUNT, count)?;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        let name = PartName::parse("a-of-b-00002-of-00010.gguf").unwrap();
        assert_eq!((name.stem, name.number, name.count), ("a-of-b", 2, 10));
        assert_eq!(name.to_string(), "a-of-b-00002-of-00010.gguf");
        for other in [
            "a.gguf",
            "a-2-of-10.gguf",
            "a-00002-of-00010.bin",
            "a-0000x-of-00010.gguf",
            "00001-of-00002.gguf",
        ] {
            assert_eq!(PartName::parse(other), None, "{other}");
        }
    }
}
