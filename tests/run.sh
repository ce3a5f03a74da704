#!/usr/bin/env bash
# Everything there is to check, set-up included: formatting, lints for this machine and for wasm32,
# documentation, all tests, the server through the packages of its clients, and the page in a headless
# browser. Can be run again; downloads and built tools stay in the cache folder. TWOCLOCK_NO_INSTALL=1
# forbids installing system packages.
set -euo pipefail
cd "$(dirname "$0")/.."
. native/setup.sh

say "Setting up"
need_rust
need_compiler
need_index
command -v python3 >/dev/null || apt_install "Python is missing" python3
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  CHROMIUM=${CHROMIUM:-$(command -v $name || true)}
done
if [ -z "$CHROMIUM" ]; then
  apt_install "Chromium is missing" chromium
  CHROMIUM=$(command -v chromium) || die "Chromium was installed and is not on the PATH: name it in CHROMIUM."
fi
export CHROMIUM
wasm=wasm32-unknown-unknown
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$wasm" ]; then
  command -v rustup >/dev/null || die "The $wasm target of Rust is missing, and there is no rustup to add it: install it as you installed Rust."
  rustup target add $wasm || die "rustup could not add $wasm (above)."
fi
# The tool must have the version of the library exactly.
version=$(sed -n 's/^wasm-bindgen = "=\(.*\)"$/\1/p' Cargo.toml)
[ -n "$version" ] || die "Cargo.toml pins no wasm-bindgen version."
tools=$cache/wasm-bindgen-$version
export WASM_BINDGEN=$tools/bin/wasm-bindgen
if ! [ -x "$WASM_BINDGEN" ]; then
  say "Building wasm-bindgen $version (once)"
  (cd "$cache" && env -u CARGO_TARGET_DIR cargo install wasm-bindgen-cli --version "$version" --root "$tools" --bin wasm-bindgen --no-default-features) ||
    die "wasm-bindgen could not be built (above)."
fi

say "Formatting"
cargo fmt --all --check || die "Run 'cargo fmt --all'."

say "Building"
cargo build --workspace --all-targets
twoclock=${CARGO_TARGET_DIR:-target}/debug/twoclock
need_vulkan "$twoclock"
"$twoclock" devices

say "The models the tests read"
pull() {
  TWOCLOCK_HOME=$cache "$twoclock" pull "$1" || die "The model did not come (above). Run this again: it goes on where it was cut."
}
TWOCLOCK_SMOLLM2=$(pull smollm2)
TWOCLOCK_GEMMA3=$(pull gemma3-270m)
export TWOCLOCK_SMOLLM2 TWOCLOCK_GEMMA3
export MESA_SHADER_CACHE_DIR=$cache/mesa

say "Tests"
cargo test --workspace

say "The server and its clients"
bash tests/server/run.sh "$twoclock"

say "Lints"
cargo clippy --workspace --all-targets -- -D warnings

say "Lints for wasm32"
cargo clippy --target $wasm --package twoclock-core --package twoclock-shaders --package twoclock-web -- -D warnings

say "Documentation"
RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps

say "The page in a browser"
bash tests/browser/smoke.sh

say "All passed"
