//! What the `twoclock` program is made of: files and models on this machine, the network, and one
//! module a command. Knows the host; the engine in `twoclock-core` does not.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic when nobody reads; `output` does not"
)]

pub mod answer;
pub mod anthropic;
pub mod asked_variants;
pub mod bad_words;
pub mod batch;
pub mod bench;
pub mod bench_serve;
pub mod catalogue;
pub mod cli;
pub mod clock;
pub mod conversation;
pub mod device_rates;
pub mod devices;
pub mod download;
pub mod dump_shaders;
pub mod embed;
pub mod engine;
pub mod engine_args;
pub mod engine_thread;
pub mod eval;
pub mod files;
pub mod fitting;
pub mod flags;
pub mod form;
pub mod heap;
pub mod host_executor;
pub mod host_time;
pub mod http;
pub mod hub;
pub mod hub_cache;
pub mod hub_choice;
pub mod hub_reference;
pub mod index;
pub mod inspect;
pub mod interrupt;
pub mod keeping_executor;
pub mod kept_tuning;
pub mod kv_cache_tokens;
pub mod loads;
pub mod log_queue;
pub mod logs;
pub mod marks;
pub mod memory;
pub mod memory_advice;
pub mod model_shapes;
pub mod models;
pub mod open_files;
pub mod openai;
pub mod output;
pub mod picture;
pub mod process;
pub mod pull;
pub mod render;
pub mod report;
pub mod run;
pub mod selftest;
pub mod serve;
pub mod simulate;
pub mod slo_args;
pub mod store;
pub mod text_folder;
pub mod text_input;
pub mod tokenize;
pub mod tune;
pub mod whole_file;
