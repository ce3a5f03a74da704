//! The rules of the house, checked: who imports whom, what every kernel consists of, how files
//! open, how long they are, and what stands at the top level.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use twoclock_shaders::kernels::ALL;

/// Files may be so long without a reason.
const SOFT_LIMIT: usize = 400;
/// No file may be longer.
const HARD_LIMIT: usize = 700;
/// Files over the soft limit, each with its reason; at most ten.
const LONG_FILES: &[(&str, &str)] = &[(
    "core/src/text/template_operands.rs",
    "one walk over an expression's lexemes, with what it gives for every kind",
)];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

/// What git tracks or would add, from the root.
fn files() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git, which every checkout has");
    assert!(output.status.success(), "this test reads a git checkout");
    let list = String::from_utf8(output.stdout).expect("file names are UTF-8");
    list.lines()
        .filter(|file| root().join(file).is_file())
        .map(str::to_owned)
        .collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn rust_files() -> impl Iterator<Item = String> {
    files().into_iter().filter(|file| file.ends_with(".rs"))
}

/// Code without comments and without its unit tests, so that prose may name what code may not.
fn code(file: &str) -> String {
    let text = read(file);
    let end = text.find("#[cfg(test)]").unwrap_or(text.len());
    text[..end]
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_top_level_is_what_it_is() {
    const ALLOWED: [&str; 9] = [
        "Cargo.toml",
        "Cargo.lock",
        "core",
        "shaders",
        "native",
        "web",
        "desktop-app",
        "tests",
        "README.md",
    ];
    let top: BTreeSet<String> = files()
        .iter()
        .filter_map(|file| file.split('/').next().map(str::to_owned))
        .collect();
    for name in top {
        let allowed =
            ALLOWED.contains(&name.as_str()) || name == "LICENSE" || name.starts_with('.');
        assert!(allowed, "{name} does not belong at the top level");
    }
}

#[test]
fn files_open_with_what_they_own_and_stay_short() {
    let mut long = 0;
    for file in rust_files() {
        let text = read(&file);
        assert!(text.starts_with("//!"), "{file} opens with //!");
        let lines = text.lines().count();
        assert!(lines <= HARD_LIMIT, "{file} has {lines} lines: split it");
        if lines > SOFT_LIMIT {
            let listed = LONG_FILES.iter().any(|(name, _)| *name == file);
            assert!(
                listed,
                "{file} has {lines} lines: split it, or list it with a reason"
            );
            long += 1;
        }
    }
    assert!(long <= 10, "{long} long files");
    for (name, reason) in LONG_FILES {
        assert!(root().join(name).is_file(), "{name} is listed but gone");
        assert!(!reason.is_empty(), "{name} needs a reason");
    }
    for file in files().iter().filter(|file| file.ends_with(".wgsl")) {
        let text = read(file);
        assert!(
            text.starts_with("// "),
            "{file} opens with what it computes"
        );
        assert!(text.lines().count() <= SOFT_LIMIT, "{file} is too long");
    }
}

#[test]
fn no_file_is_called_nothing() {
    for file in files() {
        let stem = Path::new(&file)
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        for word in ["util", "utils", "helper", "helpers", "common", "misc"] {
            assert_ne!(stem, word, "{file}: name the noun it owns");
        }
    }
}

#[test]
fn a_kernel_is_its_files() {
    let all = files();
    let has = |file: String| assert!(all.contains(&file), "{file} is missing");
    for kernel in ALL {
        let name = kernel.name;
        has(format!("shaders/src/kernels/{name}.rs"));
        has(format!("shaders/src/cpu/{name}.rs"));
        // One table of cases may serve a family, such as the three halves of attention.
        let family = name.split('_').next().unwrap_or(name);
        let tests = [name, family].map(|stem| format!("tests/tests/kernels/{stem}.rs"));
        assert!(
            tests.iter().any(|file| all.contains(file)),
            "{} is missing",
            tests[0]
        );
        for body in kernel.bodies {
            has(format!("shaders/wgsl/{}.wgsl", body.name));
            // Or after another that has it too, where two share their bodies.
            let named = ALL.iter().any(|kernel| {
                let name = kernel.name;
                let after = body.name == name || body.name.starts_with(&format!("{name}_"));
                after && kernel.bodies.iter().any(|other| other.name == body.name)
            });
            assert!(
                named,
                "{}: a body is named after its kernel {name}",
                body.name
            );
        }
    }
    let bodies: BTreeSet<&str> = ALL
        .iter()
        .flat_map(|kernel| kernel.bodies.iter().map(|body| body.name))
        .collect();
    for file in all
        .iter()
        .filter_map(|file| file.strip_prefix("shaders/wgsl/"))
    {
        if let Some(name) = file
            .strip_suffix(".wgsl")
            .filter(|name| !name.contains('/'))
        {
            assert!(bodies.contains(name), "no kernel uses {file}");
        }
    }
}

/// Layers of `core/src`, each of which may import from those before it and from itself.
const CORE_LAYERS: [&[&str]; 7] = [
    &["types", "error", "config", "clock"],
    &["sched", "sample", "text", "weights"],
    &["spec"],
    &["model"],
    &["runner"],
    &["engine"],
    &["chat"],
];

#[test]
fn core_imports_from_left_to_right() {
    let layer = |module: &str| CORE_LAYERS.iter().position(|layer| layer.contains(&module));
    for file in rust_files() {
        let Some(rest) = file.strip_prefix("core/src/") else {
            continue;
        };
        let module = rest.split(['/', '.']).next().unwrap_or_default();
        if module == "lib" {
            continue;
        }
        let Some(own) = layer(module) else {
            panic!("{file}: {module} is in no layer");
        };
        let text = code(&file);
        for used in text.split("crate::").skip(1) {
            let used = used
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default();
            // The crate's error names every layer's own.
            if used.is_empty() || module == "error" {
                continue;
            }
            let Some(theirs) = layer(used) else {
                panic!("{file}: crate::{used} is in no layer");
            };
            assert!(
                theirs < own || used == module || theirs == 0,
                "{file} imports {used}"
            );
        }
    }
}

#[test]
fn core_knows_no_host_and_no_graphics_api() {
    const FORBIDDEN: [&str; 10] = [
        "wgpu",
        "axum",
        "egui",
        "tokio",
        "std::fs",
        "std::thread",
        "Instant",
        "SystemTime",
        "target_arch",
        "std::env",
    ];
    for file in rust_files().filter(|file| file.starts_with("core/src/")) {
        let text = code(&file);
        for word in FORBIDDEN {
            assert!(!text.contains(word), "{file} names {word}");
        }
    }
    let metadata = Command::new(env!("CARGO"))
        .args([
            "tree",
            "-p",
            "twoclock-core",
            "-e",
            "normal",
            "--prefix",
            "none",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .expect("cargo");
    let tree = String::from_utf8_lossy(&metadata.stdout);
    assert!(tree.contains("twoclock-shaders"), "cargo tree: {tree}");
    assert!(!tree.contains("wgpu"), "core depends on wgpu");
}

/// Layers of `core` that may name kernels and executors.
const NAME_SHADERS: [&str; 5] = ["weights", "model", "runner", "error", "lib"];

#[test]
fn only_some_of_core_names_shaders() {
    for file in rust_files() {
        let Some(rest) = file.strip_prefix("core/src/") else {
            continue;
        };
        let module = rest.split(['/', '.']).next().unwrap_or_default();
        if !NAME_SHADERS.contains(&module) {
            assert!(
                !code(&file).contains("twoclock_shaders"),
                "{file} names shaders"
            );
        }
    }
}

#[test]
fn shaders_import_from_left_to_right() {
    const PLAIN: [&str; 7] = [
        "caps",
        "executor",
        "kernel",
        "link",
        "program",
        "recording",
        "tuning",
    ];
    for file in rust_files() {
        let Some(rest) = file.strip_prefix("shaders/src/") else {
            continue;
        };
        let module = rest.split(['/', '.']).next().unwrap_or_default();
        let text = code(&file);
        let forbidden: &[&str] = match module {
            "lib" => continue,
            module if PLAIN.contains(&module) => &["kernels", "cpu", "gpu"],
            "kernels" => &["cpu", "gpu"],
            "cpu" => &["gpu"],
            "gpu" => &["cpu"],
            "twin" => &["gpu"],
            other => panic!("{file}: {other} is in no layer"),
        };
        for used in forbidden {
            assert!(
                !text.contains(&format!("crate::{used}")),
                "{file} imports {used}"
            );
        }
        assert!(
            module == "gpu" || !text.contains("wgpu"),
            "{file} names wgpu"
        );
    }
}

#[test]
fn modules_of_native_import_in_one_direction() {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in rust_files() {
        let Some(rest) = file.strip_prefix("native/src/") else {
            continue;
        };
        let module = rest.split(['/', '.']).next().unwrap_or_default();
        let text = code(&file);
        let used = text.split("crate::").skip(1).map(|after| {
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '_');
            after[..end.unwrap_or(after.len())].to_owned()
        });
        let of = uses.entry(module.to_owned()).or_default();
        of.extend(used.filter(|used| used != module));
    }
    assert!(
        uses["bench"].contains("keeping_executor"),
        "imports are found"
    );
    // Those go that use none of the others; what is left goes around.
    while let Some(lowest) = uses.iter().find(|(_, used)| used.is_empty()) {
        let lowest = lowest.0.clone();
        uses.remove(&lowest);
        uses.values_mut().for_each(|used| {
            used.remove(&lowest);
        });
    }
    assert!(uses.is_empty(), "these use each other: {uses:?}");
}

#[test]
fn nothing_names_where_it_was_made() {
    for file in files() {
        if file == "Cargo.lock" || file.starts_with("tests/golden/") {
            continue;
        }
        let Ok(text) = fs::read_to_string(root().join(&file)) else {
            continue;
        };
        for path in [
            concat!("/wo", "rk/"),
            concat!("/ro", "ot/"),
            concat!("/ho", "me/"),
        ] {
            assert!(!text.contains(path), "{file} names a path below {path}");
        }
    }
}
