#!/usr/bin/env bash
# From a fresh clone to a first look: a Vulkan driver where none is found, the program, a small
# model. Can be run again: what is there is not fetched or built anew.
# TWOCLOCK_NO_INSTALL=1 forbids installing system packages.
set -euo pipefail
cd "$(dirname "$0")/.."
. native/setup.sh

say "Building"
need_rust
need_compiler
cargo build --release --package twoclock || die "The build failed (above)."
twoclock=${CARGO_TARGET_DIR:-target}/release/twoclock

say "Looking for a device"
need_vulkan "$twoclock"
"$twoclock" devices

say "A small model"
need_index
"$twoclock" pull smollm2 >/dev/null || die "The model did not come (above). Run this again: it goes on where it was cut."

"$twoclock" inspect -m smollm2

say "Done"
echo "Next: '$twoclock help' shows what it can do, and 'bash tests/run.sh' checks all of it."
