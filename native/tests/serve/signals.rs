//! What a server does at the host's signals, from its first moment on, and what its exit status says.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

use crate::scene::{Program, Unheard, endless, read_until, wait};

/// Models may take long to be fetched, opened and loaded.
#[test]
fn signals_are_heeded_before_it_is_heard() {
    let hub = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = hub.local_addr().unwrap().port();
    let setup = format!(
        "unset http_proxy HTTP_PROXY all_proxy ALL_PROXY; export HF_HOME=hub HF_ENDPOINT=http://127.0.0.1:{port}"
    );
    let server = Unheard::start_after(&setup, &["-m", "hf:ORG/REPO"]);
    // It asks for the model, and is not answered.
    let _asking = hub.accept().unwrap();
    server.signal("-HUP");
    server.signal("-TERM");
    let (status, said) = server.end();
    assert_eq!(status.code(), Some(0), "{status} {said}");
    assert!(said.contains("told to end"), "{said}");
}

/// Whoever asked for its end got it: a service that was told to end is neither restarted nor called failed, be it that
/// requests were cut.
#[test]
fn the_exit_status_says_whether_it_was_told_to_end() {
    for (is_asked, drain_timeout, num_signals, said) in [
        (false, "60", 1, "all requests have ended"),
        (true, "1", 1, "the time to drain is over"),
        (true, "60", 2, "stopped before all requests have ended"),
    ] {
        let server = Program::start(&["--drain-timeout", drain_timeout]);
        let client = server.client;
        let _asked = is_asked.then(|| {
            let mut stream = client.begin("/v1/completions", &endless());
            read_until(&mut stream, "data: ");
            stream
        });
        server.terminate();
        if num_signals > 1 {
            wait(|| client.get("/health").status == 503);
            server.terminate();
        }
        let (status, log) = server.end();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains(said), "{log}");
    }
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (arguments, code) in [(["--port", &port], 1), (["--drain-timeout", "soon"], 2)] {
        let (status, said) = Unheard::start_after(":", &arguments).end();
        assert_eq!(status.code(), Some(code), "{said}");
    }
}

#[test]
fn a_hang_up_has_keys_read_anew() {
    let setup = "umask 022 && echo first-key > keys";
    let server = Program::start_after(setup, &["--api-key-file", "keys"]);
    let file = server.file("keys");
    let status = |key| server.client.with_key(key).get("/v1/models").status;
    assert_eq!((status("first-key"), status("second-key")), (200, 401));
    fs::write(&file, "second-key\n").unwrap();
    server.signal("-HUP");
    wait(|| status("second-key") == 200);
    assert_eq!(status("first-key"), 401);
    fs::write(&file, "").unwrap();
    server.signal("-HUP");
    // What is asked behind it is answered as before.
    for _ in 0..20 {
        assert_eq!((status("first-key"), status("second-key")), (401, 200));
    }
    server.terminate();
    let (code, log) = server.end();
    assert_eq!(code.code(), Some(0), "{log}");
    assert!(log.contains("the keys are read anew keys=1"), "{log}");
    let stays = log
        .lines()
        .find(|line| line.contains("the keys stay as they were"));
    let stays = stays.unwrap_or_else(|| panic!("{log}"));
    assert!(
        stays.contains("ERROR") && stays.contains("holds no key"),
        "{stays}"
    );
    assert!(
        log.contains("WARN") && log.contains("mode=\"644\""),
        "{log}"
    );
    assert!(
        !log.contains("first-key") && !log.contains("second-key"),
        "{log}"
    );
}

/// Its terminal ends it, though it neither reads from there nor writes to it, but not one that was started to outlive
/// it (`nohup`); where the terminal stays, a hang-up is a wish like elsewhere.
#[test]
fn a_server_ends_with_its_terminal() {
    let setup = "umask 077 && echo a-key > keys";
    let keys = ["--api-key-file", "keys"];
    let (server, terminal) = Program::start_at_terminal(setup, &keys);
    server.signal("-HUP");
    let mut server = server;
    server.hear("the keys are read anew");
    drop(terminal);
    let (code, log) = server.end();
    assert_eq!(code.code(), Some(0), "{log}");
    assert!(log.contains("all requests have ended"), "{log}");
    let setup = format!("{setup} && trap '' HUP");
    let (mut server, terminal) = Program::start_at_terminal(&setup, &keys);
    drop(terminal);
    server.hear("the keys are read anew");
    assert_eq!(server.client.get("/health").status, 200);
}
