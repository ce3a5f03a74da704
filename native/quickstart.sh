#!/usr/bin/env bash
# From a fresh clone to a first answer: a Vulkan driver where none is found, the program, a small
# model, one prompt. Can be run again: what is there is not fetched or built anew.
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

say "One prompt"
prompt='Why is the sky blue? Answer in one sentence.'
echo "> $prompt"
"$twoclock" run -m smollm2 -p "$prompt" -n 64 || die "The model did not answer (above)."

say "Done"
echo "Next, talk to it:

  $twoclock run -m smollm2"
