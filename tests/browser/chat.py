#!/usr/bin/env python3
"""Uses the server's page in headless Chromium as a person does: sends messages, begins anew while an answer
comes, meets the most tokens, leaves fields empty. In place of a server stands one that streams three words,
slowly, and keeps what it was asked. Exit status as smoke.py's.
"""

import http.server
import json
import os
import queue
import sys
import threading
import time

import smoke

PAGE = os.path.join(os.path.dirname(__file__), "../../native/src/serve/page/index.html")

# What a person does. Each step waits for what it needs, for ten seconds at most.
DRIVE = """<script>
const until = async (true_of) => {
  for (let n = 0; n < 500 && !true_of(); n++) await new Promise((resolve) => setTimeout(resolve, 20));
  if (!true_of()) throw new Error("never: " + true_of);
};
const send = (text) => { at("text").value = text; at("ask").requestSubmit(); };
const last = () => at("talk").lastChild.innerText;
(async () => {
  const seen = {};
  await until(() => at("model").options.length);
  send("one");
  await until(() => last().includes("w0"));
  at("anew").click();
  await until(() => !running);
  seen.anew = [talk.length, at("talk").childNodes.length];
  at("most").value = "3";
  send("two");
  await until(() => !running);
  seen.most = last();
  at("most").value = "";
  at("temperature").value = "";
  send("three");
  await until(() => !running);
  seen.context = last();
  at("most").value = "0";
  send("four");
  seen.kept = [at("text").value, running];
  return seen;
})().catch((error) => ({ error: String(error) }))
  .then((seen) => fetch("/verdict", { method: "POST", body: JSON.stringify(seen) }));
</script></body>"""


class Handler(http.server.BaseHTTPRequestHandler):
    verdicts = queue.Queue()
    asked = []

    def do_GET(self):
        with open(PAGE, encoding="utf-8") as file:
            page = file.read().replace("</body>", DRIVE)
        bodies = {"/": page, "/v1/models": '{"data": [{"id": "m"}]}', "/get_load": "[]"}
        body = bodies.get(self.path, "").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8" if self.path == "/" else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(200)
        self.end_headers()
        if self.path == "/verdict":
            self.verdicts.put(body)
            return
        self.asked.append(json.loads(body))
        events = [{"choices": [{"delta": {"content": f"w{n} "}}]} for n in range(3)]
        events.append({"choices": [{"delta": {}, "finish_reason": "length"}]})
        events.append({"choices": [], "usage": {"completion_tokens": 3}})
        try:
            for event in events:
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                time.sleep(0.2)
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            pass  # The page has gone.

    def log_message(self, format, *args):
        pass


def main():
    browser = smoke.find()
    if browser is None:
        return 2
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    verdict = smoke.watch(browser, f"http://127.0.0.1:{server.server_port}/", Handler.verdicts)
    if verdict is None:
        return 2
    seen, asked = json.loads(verdict), Handler.asked
    checks = {
        "what was stopped is not in the next talk": lambda: seen["anew"] == [0, 0]
        and [m["content"] for m in asked[1]["messages"]] == ["two"],
        "a cut answer says so": lambda: "cut: it has the most tokens" in seen["most"]
        and "cut: the context is full" in seen["context"],
        "a limit is sent as it stands": lambda: asked[1]["max_tokens"] == 3 and asked[1]["temperature"] == 0.7,
        "an empty field sends none": lambda: not {"max_tokens", "temperature"} & asked[2].keys(),
        "what is out of range is not sent": lambda: seen["kept"] == ["four", None] and len(asked) == 3,
    }
    failed = [name for name, holds in checks.items() if "error" in seen or not holds()]
    print(f"the server's page: {'failed: ' + '; '.join(failed) + f' ({seen}, {asked})' if failed else 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
