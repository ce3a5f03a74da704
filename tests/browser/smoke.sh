#!/usr/bin/env bash
# Builds web/ for wasm32 and runs its page in headless Chromium, has that compile every kernel, and uses the
# server's page as a person does.
# Needs the wasm32 target, a wasm-bindgen of the version in Cargo.toml (WASM_BINDGEN or on the PATH),
# Chromium and Python; tests/run.sh brings them.
set -euo pipefail
cd "$(dirname "$0")/../.."
site=tests/browser/site
target=${CARGO_TARGET_DIR:-target}
cargo build --package twoclock-web --target wasm32-unknown-unknown
rm -rf "$site"
mkdir -p "$site"
cp web/page/index.html tests/browser/shaders.html "$site/"
# The whole workspace, because a package alone resolves other features and builds wgpu anew.
cargo build --quiet --workspace --example dump_shaders
"$target/debug/examples/dump_shaders" > "$site/shaders.json"
"${WASM_BINDGEN:-wasm-bindgen}" --target web --out-dir "$site/pkg" \
  "$target/wasm32-unknown-unknown/debug/twoclock_web.wasm"
python3 tests/browser/smoke.py "$site"
python3 -B tests/browser/chat.py
