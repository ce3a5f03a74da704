//! The program itself as a server, with a model of random weights.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::ptr::null_mut;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;

use serde_json::{Value, json};

use super::{Client, PATIENCE, golden};

/// A `twoclock serve` that is not heard, or not yet.
pub(crate) struct Unheard {
    _home: tempfile::TempDir,
    child: Child,
    /// Dropped with it.
    _watch: Sender<()>,
}

impl Unheard {
    /// Begins one, as [`Program::start_after`] does.
    pub(crate) fn start_after(command: &str, arguments: &[&str]) -> Self {
        let (home, child) = spawn(command, arguments, Shown::Nowhere);
        Self {
            _home: home,
            _watch: watch(&child),
            child,
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits for its end; gives also what it said.
    pub(crate) fn end(self) -> (ExitStatus, String) {
        let ended = self.child.wait_with_output().unwrap();
        (ended.status, String::from_utf8(ended.stderr).unwrap())
    }
}

/// A running `twoclock serve`.
pub(crate) struct Program {
    pub(crate) client: Client,
    home: tempfile::TempDir,
    child: Child,
    /// What it said up to where it is heard.
    pub(crate) said: String,
    log: Option<BufReader<Box<dyn Read + Send>>>,
    /// Dropped with it.
    _watch: Sender<()>,
}

impl Program {
    /// Serves `./model` under the name tiny, on the reference kernels; `./caller` is the same model, taught
    /// to call tools.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_after(":", arguments)
    }

    /// The same after a command of the shell, which it inherits from.
    pub(crate) fn start_after(command: &str, arguments: &[&str]) -> Self {
        Self::begin(spawn(command, arguments, Shown::Nowhere))
    }

    /// The same, whose log a terminal shows, which is given too.
    pub(crate) fn start_shown(arguments: &[&str]) -> (Self, OwnedFd) {
        let (ours, its) = terminal();
        let handle = its.try_clone().unwrap();
        let (home, child) = spawn(":", arguments, Shown::Log(its));
        (Self::heard(home, child, File::from(ours)), handle)
    }

    /// The same, controlled by a terminal that goes when what is given here is dropped. It neither reads from there
    /// nor writes to it.
    pub(crate) fn start_at_terminal(command: &str, arguments: &[&str]) -> (Self, OwnedFd) {
        let (ours, its) = terminal();
        (
            Self::begin(spawn(command, arguments, Shown::Controls(its))),
            ours,
        )
    }

    fn begin((home, mut child): (tempfile::TempDir, Child)) -> Self {
        let log = child.stderr.take().unwrap();
        Self::heard(home, child, log)
    }

    fn heard(home: tempfile::TempDir, child: Child, log: impl Read + Send + 'static) -> Self {
        let watch = watch(&child);
        let mut log = BufReader::new(Box::new(log) as Box<dyn Read + Send>);
        let mut said = String::new();
        let address = loop {
            let before = said.len();
            let length = log.read_line(&mut said).unwrap();
            assert!(length > 0, "it did not begin to listen: {said}");
            if let Some((_, address)) = said[before..].split_once("listening at http://") {
                let is_of_it = |c: char| c.is_ascii_digit() || ".:".contains(c);
                let end = address.find(|c| !is_of_it(c)).unwrap_or(address.len());
                break address[..end].parse().unwrap();
            }
        };
        Self {
            client: Client(address, None),
            home,
            child,
            said,
            log: Some(log),
            _watch: watch,
        }
    }

    /// Reads its log until it says this.
    pub(crate) fn hear(&mut self, text: &str) {
        let before = self.said.len();
        let log = self.log.as_mut().unwrap();
        while !self.said[before..].contains(text) {
            let length = log.read_line(&mut self.said).unwrap();
            assert!(length > 0, "it did not say {text:?}: {}", self.said);
        }
    }

    /// Hears it no more: what it says from now on it cannot write.
    pub(crate) fn stop_listening(&mut self) {
        self.log = None;
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Lets it have so many files open, from now on.
    #[cfg(target_os = "linux")]
    pub(crate) fn limit_files(&self, num: usize) {
        let id = self.child.id().to_string();
        let limit = format!("--nofile={num}:");
        let limited = Command::new("prlimit")
            .args(["--pid", &id, &limit])
            .status();
        assert!(limited.unwrap().success());
    }

    /// A file beside its models.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Waits for its end, and reads what it logged only then.
    pub(crate) fn end_unread(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        (status, self.end().1)
    }

    /// Waits for its end; gives also what it logged.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let mut said = std::mem::take(&mut self.said);
        if let Some(log) = &mut self.log {
            while log.read_line(&mut said).unwrap() > 0 {}
        }
        (self.child.wait().unwrap(), said)
    }
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([name, &id]).status().unwrap();
    assert!(sent.success());
}

/// Ends a program that a test waits for far too long, unless what is given here is dropped before: such a test fails
/// and does not hang.
fn watch(child: &Child) -> Sender<()> {
    let (watch, dropped) = channel();
    let id = child.id().to_string();
    thread::spawn(move || {
        if dropped.recv_timeout(6 * PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", &id]).status();
        }
    });
    watch
}

/// A new terminal: the end that shows it, and the one that programs have.
#[allow(unsafe_code, reason = "terminals have no interface that is safe")]
fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut ours, mut its) = (-1, -1);
    // SAFETY: the call writes two descriptors, which are then nobody else's.
    unsafe {
        let (ours_at, its_at) = (&raw mut ours, &raw mut its);
        assert_eq!(
            libc::openpty(ours_at, its_at, null_mut(), null_mut(), null_mut()),
            0
        );
        // The program is not to hold the end that shows it.
        assert_eq!(libc::fcntl(ours, libc::F_SETFD, libc::FD_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(its))
    }
}

/// Has a program begin a session of its own that this terminal controls.
#[allow(unsafe_code, reason = "sessions have no interface that is safe")]
fn control(command: &mut Command, terminal: OwnedFd) {
    let begin = move || {
        // SAFETY: these calls touch no memory, and may be made between fork and exec.
        let began = unsafe {
            // Whoever runs the tests may have been started to outlive a terminal.
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            libc::setsid() != -1 && libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) != -1
        };
        match began {
            true => Ok(()),
            false => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: it allocates nothing and takes no lock.
    unsafe { command.pre_exec(begin) };
}

/// What a program has of a terminal.
enum Shown {
    Nowhere,
    /// It is controlled by it, and neither reads from there nor writes to it.
    Controls(OwnedFd),
    /// Its log goes there.
    Log(OwnedFd),
}

/// Begins a program in a home of its own.
fn spawn(command: &str, arguments: &[&str], shown: Shown) -> (tempfile::TempDir, Child) {
    let port = match arguments.contains(&"--port") {
        true => &[][..],
        false => &["--port", "0"],
    };
    let home = tempfile::tempdir().unwrap();
    for name in ["model", "caller"] {
        let folder = home.path().join(name);
        fs::create_dir(&folder).unwrap();
        for file in [
            "models/qwen2/config.json",
            "models/qwen2/model.safetensors",
            "tokenizer/tokenizer.json",
            "tokenizer/tokenizer_config.json",
        ] {
            let from = golden(file);
            fs::copy(&from, folder.join(from.file_name().unwrap())).unwrap();
        }
    }
    teach(&home.path().join("caller/tokenizer_config.json"));
    let mut program = Command::new("sh");
    program
        .args(["-c", &format!("{command} && exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_twoclock"))
        .env("TWOCLOCK_HOME", home.path())
        .env_remove("TWOCLOCK_API_KEY")
        .current_dir(home.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .args(["serve", "-m", "tiny=./model", "--device", "cpu"])
        .args(port)
        .args(arguments);
    match shown {
        Shown::Nowhere => {}
        Shown::Controls(terminal) => control(&mut program, terminal),
        Shown::Log(terminal) => {
            program.stderr(terminal);
        }
    }
    let child = program.spawn().unwrap();
    (home, child)
}

/// Has a template speak of tools, in the style of Hermes.
fn teach(config: &Path) {
    let text = fs::read_to_string(config).unwrap();
    let mut config_json: Value = serde_json::from_str(&text).unwrap();
    let template = config_json["chat_template"].as_str().unwrap();
    let tools = "{% if tools %}{{ tools|tojson }}<tool_call>{\"name\": a, \"arguments\": b}</tool_call>{% endif %}";
    config_json["chat_template"] = json!(format!("{tools}{template}"));
    fs::write(config, config_json.to_string()).unwrap();
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
