#!/usr/bin/env bash
# What rounding costs: perplexity of a text (at least 4,000 tokens, in windows of 2048) under a model, for
# every --compute-dtype or every --kv-cache-dtype. Fails where a rounded one is more than 1 % off, or, of
# the arithmetic, log-probabilities are more than 0.08 off on average. Takes minutes, so nothing runs it
# but a person.
#
#   bash tests/perplexity.sh compute|kv [MODEL [TEXT]]
#
# MODEL is anything `twoclock -m` takes, smollm2 where absent; TEXT a file, the repository's own prose where
# absent. TWOCLOCK names the program, DEVICE its --device.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-}
model=${2:-smollm2}
text=${3:-}
case $what in
  compute) runs=("f32 f32" "f16 auto" "int8 auto") ;;
  kv) runs=("f32 f16" "f32 f32" "f32 int8") ;;
  *) echo "Say what is rounded: compute or kv." >&2; exit 2 ;;
esac
twoclock=${TWOCLOCK:-target/release/twoclock}
[ -x "$twoclock" ] || { echo "No program at $twoclock: 'cargo build --release -p twoclock', or name it in TWOCLOCK." >&2; exit 1; }
if [ -z "$text" ]; then
  text=$(mktemp)
  trap 'rm -f "$text"' EXIT
  cat README.md core/ARCHITECTURE.md >"$text"
fi
for run in "${runs[@]}"; do
  read -r compute kv <<<"$run"
  echo "$compute $kv $("$twoclock" eval -m "$model" --text "$text" --json --logprobs --max-model-len 2048 \
    --compute-dtype "$compute" --kv-cache-dtype "$kv" ${DEVICE:+--device "$DEVICE"})"
done | python3 -c '
import json, sys
what, bad, base = sys.argv[1], [], None
for line in sys.stdin:
    compute, kv, found = line.split(" ", 2)
    e = json.loads(found)
    base = base or e
    off = e["ppl"] / base["ppl"] - 1
    pairs = list(zip(e["logprobs"], base["logprobs"]))
    delta = sum(abs(a - b) for a, b in pairs) / len(pairs)
    print("compute %-4s kv %-4s %d tokens  perplexity %.4f  %+.4f %%  mean |change of log-probability| %.5f"
          % (compute, kv, e["tokens"], e["ppl"], 100 * off, delta), flush=True)
    if e["tokens"] < 4000:
        bad.append("The text has under 4,000 tokens: give a longer one.")
    if off > 0.01 or (what == "compute" and delta > 0.08):
        bad.append("compute %s, kv %s is too far off." % (compute, kv))
sys.exit("\n".join(bad) or None)
' "$what"
