#!/usr/bin/env bash
# What rounded keys and values cost: perplexity of the repository's own prose (at least 4,000 tokens, in
# windows of 2048) under SmolLM2 for every --kv-cache-dtype. Fails where int8 is more than 1 % above
# f16. Takes minutes, so nothing runs it but a person.
#
#   bash tests/kv_perplexity.sh [MODEL [TEXT]]
#
# MODEL is anything `twoclock -m` takes, smollm2 where absent; TEXT a file. TWOCLOCK names the program,
# DEVICE its --device.
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:-smollm2}
text=${2:-}
twoclock=${TWOCLOCK:-target/release/twoclock}
[ -x "$twoclock" ] || { echo "No program at $twoclock: 'cargo build --release -p twoclock', or name it in TWOCLOCK." >&2; exit 1; }
if [ -z "$text" ]; then
  text=$(mktemp)
  trap 'rm -f "$text"' EXIT
  cat README.md core/ARCHITECTURE.md >"$text"
fi
for dtype in f32 f16 int8; do
  "$twoclock" eval -m "$model" --text "$text" --json --max-model-len 2048 \
    --kv-cache-dtype $dtype ${DEVICE:+--device "$DEVICE"}
done | python3 -c '
import json, sys
f32, f16, int8 = (json.loads(line) for line in sys.stdin)
for name, e in ("f32", f32), ("f16", f16), ("int8", int8):
    print("%-5s %d tokens  nll %.6f  perplexity %.4f  %+.4f %% of f16"
          % (name, e["tokens"], e["nll"], e["ppl"], 100 * (e["ppl"] / f16["ppl"] - 1)))
if int8["tokens"] < 4000:
    sys.exit("The text has under 4,000 tokens: give a longer one.")
if int8["ppl"] > 1.01 * f16["ppl"]:
    sys.exit("int8 is more than 1 % above f16.")
'
