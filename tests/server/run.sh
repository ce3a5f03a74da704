#!/usr/bin/env bash
# Serves a model of random weights and asks it through the packages that programs use, holds the production notes
# against it (metrics, flags, paths, the proxy's file), then has schemathesis hold the server against its own
# description. Takes the built program; packages go into a virtual environment in the cache folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
. native/setup.sh

twoclock=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/debug/twoclock}")
[ -x "$twoclock" ] || die "$twoclock is not there: build it first."
venv=$cache/server-venv
packages="anthropic==2.14.0 openai==3.57.0 schemathesis==4.32.5"
if [ "$(cat "$venv/packages" 2>/dev/null)" != "$packages" ]; then
  python3 -m venv "$venv" || { apt_install "Python's venv is missing" python3-venv; python3 -m venv "$venv"; }
  # Without quotes: a list.
  "$venv/bin/pip" install --quiet --disable-pip-version-check $packages || die "The packages did not come (above)."
  echo "$packages" > "$venv/packages"
fi

command -v openssl >/dev/null || apt_install "openssl is missing" openssl
# Unpacked into the cache: installed, it would be started too.
if ! PATH=$PATH:/usr/sbin:$cache/nginx/usr/sbin command -v nginx >/dev/null; then
  mkdir -p "$cache/nginx"
  (cd "$cache/nginx" && apt-get download -q nginx && dpkg -x nginx_*.deb .) > "$cache/apt.log" 2>&1 || {
    tail -n 20 "$cache/apt.log" >&2; die "nginx is missing and did not come (above). Install it yourself and run this again."; }
fi

home=$(mktemp -d)
server=
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$home"' EXIT
mkdir "$home/model"
cp tests/golden/models/qwen2/{config.json,model.safetensors} tests/golden/tokenizer/{tokenizer,tokenizer_config}.json "$home/model/"
# Its template is taught to speak of tools.
python3 - "$home/model/tokenizer_config.json" <<'END'
import json, sys
config = json.load(open(sys.argv[1]))
call = '<tool_call>{"name": a, "arguments": b}</tool_call>'
config["chat_template"] = "{% if tools %}{{ tools|tojson }}" + call + "{% endif %}" + config["chat_template"]
json.dump(config, open(sys.argv[1], "w"))
END
export OPENAI_API_KEY=key-of-a-test
# There before it is read, however late the server begins.
: > "$home/log"
TWOCLOCK_HOME=$home TWOCLOCK_API_KEY=$OPENAI_API_KEY "$twoclock" serve -m "tiny=$home/model" --device cpu --port 0 2> "$home/log" &
server=$!
for _ in $(seq 300); do
  base=$(sed -n 's/^listening at //p' "$home/log")
  [ -z "$base" ] || break
  sleep 0.1
done
[ -n "$base" ] || { cat "$home/log" >&2; die "The server did not begin to listen."; }

"$venv/bin/python" tests/server/clients.py "$base" tiny || { tail -n 20 "$home/log" >&2; die "A client was not served (above)."; }
"$venv/bin/python" tests/server/notes.py "$base" "$twoclock" || die "The production notes do not hold (above)."
PATH=$PATH:/usr/sbin:$cache/nginx/usr/sbin "$venv/bin/python" tests/server/proxy.py "$base" tiny ||
  die "The proxy's file does not hold (above)."

# What hostile clients leave: right answers for the others, and nothing held. What they cost is no matter here.
"$venv/bin/python" tests/server/hostile.py "$base" tiny --seconds 6 --most 100 > "$home/hostile" || {
  cat "$home/hostile" >&2; die "Hostile clients did harm (above)."; }
grep -A 2 itl_p95_ratio "$home/hostile"

# Nothing that can be sent is a fault of the server, and what it answers is as it says.
# It leaves notes where it runs.
(cd "$home" && "$venv/bin/schemathesis" run "$base/openapi.json" --header "Authorization: Bearer $OPENAI_API_KEY" \
  --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
  --max-examples "${EXAMPLES:-20}" --seed 1 --no-color \
  --request-timeout 60) > "$home/schemathesis" 2>&1 || { cat "$home/schemathesis" >&2; die "schemathesis found a fault (above)."; }
grep -A 1 'Test cases' "$home/schemathesis"

kill -TERM "$server"
wait "$server" || die "The server did not end in order."
! grep -q panicked "$home/log" || { cat "$home/log" >&2; die "The server panicked."; }
