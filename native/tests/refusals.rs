//! What the program does when the world is not as it should be: one line, and no panic.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/gguf/Q4_0.gguf")
}

fn twoclock(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twoclock"));
    command
        .env("TWOCLOCK_HOME", home)
        .stdin(Stdio::null())
        .args(arguments);
    command
}

fn run(home: &Path, arguments: &[&str]) -> Command {
    let mut command = twoclock(home, &["run", "--device", "cpu", "--prompt-ids", "1"]);
    command.args(arguments).arg("-m").arg(model());
    command
}

/// Exit status 1 and one line that says so.
fn refused(output: &Output, because: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(because), "{said}");
}

#[test]
fn limits_beyond_the_model_are_refused() {
    let home = tempfile::tempdir().unwrap();
    for limit in ["513", "4294967297", "18446744073709551615"] {
        let output = run(home.path(), &["--max-model-len", limit]).output();
        refused(
            &output.unwrap(),
            "the model was made for 512 positions: lower --max-model-len",
        );
    }
    let output = run(home.path(), &["--temperature", "1e-40"]).output();
    refused(&output.unwrap(), "temperature is 1e-40");
    for (flag, value, because) in [
        ("--top-p", "1.5", "--top-p is 1.5"),
        ("--min-p", "2", "--min-p is 2"),
        ("--repetition-penalty", "0", "--repetition-penalty is 0"),
        ("--presence-penalty", "-3", "--presence-penalty is -3"),
        ("--logit-bias", "3=1000", "--logit-bias is 1000"),
        (
            "--logit-bias",
            "99999=1",
            "--logit-bias holds token id 99999",
        ),
        ("--stop", "", "stop is an empty string"),
        (
            "--memory",
            "0",
            "a shorter context or fewer sequences: even --max-model-len 64 takes --memory ",
        ),
    ] {
        let output = run(home.path(), &[flag, value]).output();
        refused(&output.unwrap(), because);
    }
    // As much memory as can be said is not none.
    let output = run(
        home.path(),
        &["-n", "1", "--memory", "18446744073709551615"],
    )
    .output();
    assert!(output.unwrap().status.success());
}

/// The model with these bytes instead of as many others.
fn changed(home: &Path, name: &str, change: impl Fn(&mut Vec<u8>)) -> PathBuf {
    let mut bytes = std::fs::read(model()).unwrap();
    change(&mut bytes);
    let path = home.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_form_is_refused_by_its_flag() {
    let home = tempfile::tempdir().unwrap();
    let scene = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let folder = home.path().join("model");
    std::fs::create_dir(&folder).unwrap();
    for file in [
        "models/llama_bias/config.json",
        "models/llama_bias/model.safetensors",
        "tokenizer/tokenizer.json",
    ] {
        let name = Path::new(file).file_name().unwrap();
        std::fs::copy(scene.join(file), folder.join(name)).unwrap();
    }
    for (flag, form, because) in [
        (
            "--regex",
            "é[A-",
            "--regex: this is no regular expression: unclosed character class, at its character 2",
        ),
        (
            "--json-schema",
            "{\"type\":",
            "--json-schema: the schema is no JSON",
        ),
    ] {
        let arguments = ["run", "--device", "cpu", "--raw", "-p", "a", flag, form];
        let mut command = twoclock(home.path(), &arguments);
        refused(&command.arg("-m").arg(&folder).output().unwrap(), because);
    }
}

#[test]
fn a_taken_port_says_how_to_take_another() {
    let home = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let arguments = ["serve", "--device", "cpu", "--port", &port];
    let mut command = twoclock(home.path(), &arguments);
    // What else a log says, as of open files, is off; this is not.
    command.env("RUST_LOG", "off").arg("-m").arg(model());
    refused(&command.output().unwrap(), "give another with --port");
}

#[test]
fn weights_that_are_no_numbers_are_refused() {
    let home = tempfile::tempdir().unwrap();
    // The last tensor of the file is the last norm.
    let model = changed(home.path(), "nan.gguf", |bytes| {
        let start = bytes.len() - 1024;
        bytes[start..].fill(0xff);
    });
    let text = home.path().join("text");
    std::fs::write(&text, "Hello there").unwrap();
    for arguments in [
        &["run", "--device", "cpu", "--prompt-ids", "1"][..],
        &["eval", "--device", "cpu", "--text", text.to_str().unwrap()],
    ] {
        let mut command = twoclock(home.path(), arguments);
        let output = command.arg("-m").arg(&model).output();
        refused(&output.unwrap(), "logits that are not numbers");
    }
}

#[test]
fn what_a_file_says_cannot_command_the_terminal_or_fill_it() {
    let home = tempfile::tempdir().unwrap();
    let replaced = |from: &str, to: &str| {
        changed(home.path(), "odd.gguf", |bytes| {
            assert_eq!(from.len(), to.len());
            let at = bytes.windows(from.len()).position(|w| w == from.as_bytes());
            let at = at.unwrap();
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        })
    };
    let inspect = |model: &Path| {
        let mut command = twoclock(home.path(), &["inspect", "-m"]);
        command.arg(model).output().unwrap()
    };
    let output = inspect(&replaced("tiny-Q4_0", "\u{1b}[2J\nname"));
    assert!(output.status.success());
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.starts_with("name          \\u{1b}[2J name\n"),
        "{shown}"
    );

    let folder = home.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let config = format!("{{\"model_type\": \"{}\"}}", "x".repeat(500_000));
    std::fs::write(folder.join("config.json"), config).unwrap();
    let output = inspect(&folder);
    refused(&output, "config.json: model_type is \"xxx");
    assert!(output.stderr.len() < 5000, "{}", output.stderr.len());
}

#[test]
fn what_is_quantized_is_not_quantized_again() {
    let home = tempfile::tempdir().unwrap();
    let output = run(home.path(), &["--quantize", "q8_0"]).output();
    refused(&output.unwrap(), "Q4_0 already");
    // What is not, is: 4 bits of this model say something else, 8 the same.
    let ids = |quantize: &[&str]| {
        let whole = model().with_file_name("F16.gguf");
        let ask = [
            "run",
            "--device",
            "cpu",
            "--prompt-ids",
            "1,2,3,4,5",
            "-n",
            "6",
        ];
        let mut command = twoclock(home.path(), &ask);
        let command = command.args(["--json", "--ignore-eos"]).args(quantize);
        let output = command.arg("-m").arg(whole).output().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["ids"].clone()
    };
    let unquantized = ids(&[]);
    assert_eq!(ids(&["--quantize", "q8_0"]), unquantized);
    assert_ne!(ids(&["--quantize", "q4_0"]), unquantized);
}

#[test]
fn a_reader_who_leaves_is_no_failure() {
    let home = tempfile::tempdir().unwrap();
    let runs: [&[&str]; 2] = [&["-n", "200"], &["-n", "2", "--json"]];
    let mut commands: Vec<_> = runs.iter().map(|more| run(home.path(), more)).collect();
    commands.push(twoclock(home.path(), &["list"]));
    for mut command in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_and_a_pipe_for_a_model_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let full = || {
        std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let runs: [&[&str]; 2] = [&["-n", "200"], &["-n", "2", "--json"]];
    for more in runs {
        let output = run(home.path(), more).stdout(full()).output();
        refused(&output.unwrap(), "standard output cannot be written");
    }
    let unheard = twoclock(home.path(), &["rm", "nothing"])
        .stderr(full())
        .status();
    assert_eq!(unheard.unwrap().code(), Some(1));

    let pipe = home.path().join("pipe.gguf");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let output = twoclock(home.path(), &["inspect", "-m"])
        .arg(&pipe)
        .output();
    refused(&output.unwrap(), "no regular file");

    std::fs::rename(&pipe, home.path().join("manifest.json")).unwrap();
    let output = twoclock(home.path(), &["dump-shaders", "--for", "cpu"])
        .args([Path::new("-m"), &model(), home.path()])
        .output();
    refused(&output.unwrap(), "manifest.json cannot be written");

    // Nothing is lost where a result goes nowhere on purpose; where it was closed, it is.
    let mut closed = Command::new("sh");
    closed.args(["-c", "exec \"$0\" list >&-", env!("CARGO_BIN_EXE_twoclock")]);
    let output = closed.env("TWOCLOCK_HOME", home.path()).output();
    refused(&output.unwrap(), "closed before the program began");
    let nowhere = twoclock(home.path(), &["list"])
        .stdout(Stdio::null())
        .status();
    assert!(nowhere.unwrap().success());
}

#[test]
fn a_line_that_is_no_text_does_not_end_a_conversation() {
    let home = tempfile::tempdir().unwrap();
    let lines = home.path().join("lines");
    std::fs::write(&lines, b"Hi\n\xff\xfe\nHi\n").unwrap();
    let mut command = twoclock(home.path(), &["run", "--device", "cpu", "-n", "2", "-m"]);
    let output = command
        .arg(model())
        .stdin(std::fs::File::open(lines).unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("no UTF-8"), "{said}");
    let answers = output.stdout.iter().filter(|b| **b == b'\n').count();
    assert!(answers >= 2, "{:?}", output.stdout);
}

#[cfg(unix)]
#[test]
fn a_line_without_end_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut command = twoclock(home.path(), &["run", "--device", "cpu", "-m"]);
    let output = command
        .arg(model())
        .stdin(std::fs::File::open("/dev/zero").unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("a line of standard input is too long"),
        "{said}"
    );
}

#[test]
fn a_text_without_end_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let long = home.path().join("long.txt");
    std::fs::File::create(&long)
        .unwrap()
        .set_len((16 << 20) + 1)
        .unwrap();
    let endless = Path::new(if cfg!(windows) { "NUL" } else { "/dev/zero" });
    for (file, because) in [
        (long.as_path(), "is too long"),
        (endless, "no regular file"),
        (home.path(), "no regular file"),
    ] {
        for command in [["run", "-f"], ["eval", "--text"]] {
            let mut command = twoclock(home.path(), &command);
            command.arg(file).args(["--device", "cpu", "-m"]);
            refused(&command.arg(model()).output().unwrap(), because);
        }
    }
}

#[test]
fn a_model_without_a_tokenizer_answers_ids_with_ids() {
    let home = tempfile::tempdir().unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/models/llama_bias");
    let run = |more: &[&str]| {
        let mut command = twoclock(home.path(), &["run", "--device", "cpu", "-n", "4", "-m"]);
        command.arg(&model).args(more).output().unwrap()
    };
    let shown = run(&["--prompt-ids", "1,2,3"]);
    let told = run(&["--prompt-ids", "1,2,3", "--json"]);
    assert!(shown.status.success() && told.status.success());
    let answer: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let ids: Vec<String> = (answer["ids"].as_array().unwrap().iter())
        .map(ToString::to_string)
        .collect();
    assert_eq!((ids.len(), answer["text"].is_null()), (4, true));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ids);
    refused(&run(&["-p", "Hi", "--raw"]), "hold no tokenizer");
}

#[test]
fn a_model_without_a_template_says_how_to_use_it() {
    let home = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let base = home.path().join("base");
    std::fs::create_dir(&base).unwrap();
    for file in [
        "models/llama_bias/config.json",
        "models/llama_bias/model.safetensors",
        "tokenizer/tokenizer.json",
    ] {
        let name = Path::new(file).file_name().unwrap();
        std::fs::copy(golden.join(file), base.join(name)).unwrap();
    }
    let run = |model: &Path, more: &[&str]| {
        let mut command = twoclock(home.path(), &["run", "--device", "cpu", "-n", "2", "-m"]);
        command.arg(model).args(more).output().unwrap()
    };
    refused(&run(&base, &["-p", "Hi"]), "--raw asks for");
    refused(&run(&base, &[]), "no conversation with it");
    let suite = golden.join("tokenizer_suites/llama-spm.gguf");
    refused(&run(&suite, &["-p", "Hi"]), "a vocabulary alone");

    let mut command = twoclock(
        home.path(),
        &[
            "run", "--device", "cpu", "-n", "2", "--raw", "-f", "-", "-m",
        ],
    );
    let mut child = command
        .arg(&base)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"two\nlines").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && !output.stdout.is_empty());
}
