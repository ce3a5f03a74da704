//! What stands below the arguments in the help is broken into lines once: by the terminal's width, at most 100.

use clap::CommandFactory;

use super::Cli;

#[test]
fn no_line_of_the_help_is_broken_twice() {
    let mut command = Cli::command();
    command.build();
    let commands = command.get_subcommands().chain([&command]);
    let mut num_lines = 0;
    for command in commands {
        let Some(tail) = command.get_after_help() else {
            continue;
        };
        let tail = tail.to_string();
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        let mut before = "";
        for line in tail.lines() {
            let name = command.get_name();
            // A table and an example stand as they are written.
            let is_whole = is_prose(line) || line.chars().count() <= 100;
            assert!(is_whole, "{name}: wider than the help: {line}");
            let is_one = !(is_prose(line) && is_prose(before)) || before.ends_with(':');
            assert!(is_one, "{name}: a paragraph is one line: {line}");
            before = line;
            num_lines += 1;
        }
    }
    assert!(num_lines > 100);
}
