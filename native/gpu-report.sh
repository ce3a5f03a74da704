#!/usr/bin/env bash
# What a GPU host does with twoclock, in one JSON file and one page of text, within eight minutes. Needs
# a built twoclock, bash and timeout; no compiler, no network, no model's files.
#
#   gpu-report.sh [TWOCLOCK [FOLDER]]     the program (on the PATH), and where to write (gpu-report)
#
# TWOCLOCK_DEVICE names another device than the best. TWOCLOCK_REPORT_SMALL=1 takes a model so small
# that a software driver shows whether all of this works.
set -euo pipefail

twoclock=${1:-twoclock}
folder=${2:-gpu-report}
case $twoclock in -*) echo "usage: gpu-report.sh [TWOCLOCK [FOLDER]]" >&2; exit 1 ;; esac
command -v "$twoclock" >/dev/null || { echo "gpu-report: $twoclock is no program; name the built twoclock" >&2; exit 1; }
mkdir -p -- "$folder"
page=$folder/report.txt
json=$folder/report.json
: >"$page"
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
export TWOCLOCK_HOME=$home
device=()
[ -z "${TWOCLOCK_DEVICE:-}" ] || device=(--device "$TWOCLOCK_DEVICE")

shape=llama-3-8b
perf=(--perf)
serve=(--prompt 512,2048,8191 --parallel 8,64,256 --tokens 64 --max-num-batched-tokens 2048)
if [ -n "${TWOCLOCK_REPORT_SMALL:-}" ]; then
  shape=$home/config.json
  cat >"$shape" <<'SHAPE'
{"model_type": "llama", "vocab_size": 2000, "hidden_size": 256, "intermediate_size": 512,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
SHAPE
  perf=()
  serve=(--prompt 64,128 --parallel 4,8 --tokens 8)
fi

failed=0
parts=()
# Runs one part for at most so many seconds; what it prints goes onto the page, also where it fails.
part() {
  local name=$1 seconds=$2 begin=$SECONDS status=0
  shift 2
  printf '\n== %s\n\n' "$name" >>"$page"
  timeout "$seconds" "$twoclock" "$@" >>"$page" 2>&1 || status=$?
  # A part that says it went well has written what it was to.
  case $* in *--json-to*) [ "$status" != 0 ] || [ -s "$home/$name.json" ] || status=1 ;; esac
  [ "$status" = 0 ] || { failed=1; printf '\n(ended with status %s)\n' "$status" >>"$page"; }
  printf '(%s s)\n' $((SECONDS - begin)) >>"$page"
  parts+=("$name:$status:$((SECONDS - begin))")
}

part devices 20 devices
# With the kernels of a model of these widths by themselves, attention among them.
part selftest 200 selftest "${perf[@]}" "${device[@]}" --json-to "$home/selftest.json"
part bench 250 bench --load-format dummy --model-config "$shape" --weight-format q4_0 "${serve[@]}" \
  --regimes --no-first-token "${device[@]}" --json-to "$home/bench.json" --plot "$folder/roof.svg"

# What a part did not write is null.
{
  printf '{"parts": ['
  comma=
  for entry in "${parts[@]}"; do
    IFS=: read -r name status seconds <<<"$entry"
    printf '%s{"name": "%s", "status": %s, "seconds": %s}' "$comma" "$name" "$status" "$seconds"
    comma=', '
  done
  printf ']'
  for name in selftest bench; do
    printf ', "%s": ' "$name"
    if [ -s "$home/$name.json" ]; then cat "$home/$name.json"; else printf null; fi
  done
  printf '}\n'
} >"$json"
echo "$page and $json are written."
exit $failed
