#!/usr/bin/env bash
# Builds web/ for wasm32 and runs its page in headless Chromium. Needs the wasm32 target, a
# wasm-bindgen of the version in Cargo.toml (WASM_BINDGEN or on the PATH), Chromium and Python;
# tests/run.sh brings them.
set -euo pipefail
cd "$(dirname "$0")/../.."
site=tests/browser/site
target=${CARGO_TARGET_DIR:-target}
cargo build --package twoclock-web --target wasm32-unknown-unknown
rm -rf "$site"
mkdir -p "$site"
cp web/page/index.html "$site/"
"${WASM_BINDGEN:-wasm-bindgen}" --target web --out-dir "$site/pkg" \
  "$target/wasm32-unknown-unknown/debug/twoclock_web.wasm"
python3 tests/browser/smoke.py "$site"
