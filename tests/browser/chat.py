#!/usr/bin/env python3
"""Uses the server's page in headless Chromium as a person does: sends messages, begins anew while an answer
comes, meets the most tokens, leaves fields empty, looks at the live view. In place of a server stands one that
streams three words, slowly, keeps what it was asked, and tells of steps; its policy for the page is the server's.
Exit status as smoke.py's.
"""

import base64
import hashlib
import http.server
import json
import os
import queue
import re
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
const broken = [];
document.addEventListener("securitypolicyviolation", (event) => broken.push(event.violatedDirective));
(async () => {
  const seen = {};
  await until(() => at("model").options.length);
  send("one");
  await until(() => last().includes("w0"));
  at("anew").click();
  await until(() => !running);
  seen.anew = [talk.length, at("talk").childNodes.length];
  at("most").value = "3";
  at("temperature").value = "0.5";
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
  const marks = () => [...at("roof").querySelectorAll("[transform]")];
  await until(() => marks().length);
  seen.marks = marks().map((mark) => {
    const [, x, y] = /\(([\d.]+) ([\d.]+)\)/.exec(mark.getAttribute("transform")).map(Number);
    return [mark.getAttribute("class"), x, y, Number(mark.getAttribute("opacity")), mark.textContent];
  });
  seen.roofs = [...at("roof").querySelectorAll(".roof")].map((line) => [line.getAttribute("class"), line.getAttribute("d")]);
  const { width, height } = at("roof").getBoundingClientRect();
  seen.size = [width, height];
  seen.told = [at("of").textContent, at("step").textContent, at("reach").textContent];
  seen.foreign = [document.images.length, window.foreign === undefined];
  seen.broken = [...broken];
  // That it is heeded at all.
  at("talk").setAttribute("style", "color: red");
  await until(() => broken.length > seen.broken.length);
  return seen;
})().catch((error) => ({ error: String(error) }))
  .then((seen) => fetch("/verdict", { method: "POST", body: JSON.stringify(seen) }));
</script></body>"""


# A name and a kind that would do harm as markup, and a step that took no time.
NAME = "<img src=/x onerror='window.foreign = 1'>"


def step(kind, num_tokens, num_seqs, bytes, flops, seconds, age_s):
    return {"kind": kind, "num_tokens": num_tokens, "num_seqs": num_seqs, "bytes": bytes, "flops": flops,
            "seconds": seconds, "predicted_seconds": seconds, "age_s": age_s}


STEPS = [
    {"model": NAME, "roof": {"bytes_per_second": 1e10, "flops_per_second": 1e11}, "num_steps": 9, "steps": [
        step("prefill", 512, 3, 2e8, 1.5e11, 2.0, 20.0),
        step("mixed", 66, 3, 1e8, 2e10, 0.4, 5.0),
        step(NAME, 1, 1, 1e8, 3e8, 0.01, 3.0),
        step("decode", 1, 1, 1e8, 3e8, 0.0, 2.0),
        step("decode", 1, 1, 1e8, 3e8, 0.02, 1.0),
        step("decode", 2, 2, 1e8, 6e8, 0.025, 0.1),
    ]},
    {"model": "other", "roof": None, "num_steps": 0, "steps": []},
]


def policy(page):
    digests = {kind: [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
                      for text in re.findall(f"<{kind}>(.*?)</{kind}>", page, re.DOTALL)] for kind in ["script", "style"]}
    allowed = "; ".join(f"{kind}-src " + " ".join(f"'sha256-{digest}'" for digest in of) for kind, of in digests.items())
    return f"default-src 'none'; {allowed}; connect-src 'self'"


class Handler(http.server.BaseHTTPRequestHandler):
    verdicts = queue.Queue()
    asked = []

    def do_GET(self):
        with open(PAGE, encoding="utf-8") as file:
            page = file.read().replace("</body>", DRIVE)
        bodies = {"/": page, "/v1/models": '{"data": [{"id": "m"}]}', "/get_load": "[]", "/steps": json.dumps(STEPS)}
        body = bodies.get(self.path, "").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8" if self.path == "/" else "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.path == "/":
            self.send_header("Content-Security-Policy", policy(page))
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
        "what is set is sent as it stands": lambda: (asked[1]["max_tokens"], asked[1]["temperature"]) == (3, 0.5),
        "at first the server chooses": lambda: "temperature" not in asked[0],
        "an empty field sends none": lambda: not {"max_tokens", "temperature"} & asked[2].keys(),
        "what is out of range is not sent": lambda: seen["kept"] == ["four", None] and len(asked) == 3,
    }
    checks |= {
        "a mark for each step, the newest last and plainest": lambda: [m[0] for m in seen["marks"]]
        == ["prefill", "mixed", "decode", "decode last"]
        and [m[3] for m in seen["marks"]] == sorted(m[3] for m in seen["marks"]) and seen["marks"][-1][3] == 1,
        # Operations a byte: 750, 200, 3, 6; operations a second: 75, 50, 15, 24 G.
        "marks stand where their steps do": lambda: [m[1] for m in seen["marks"]]
        == sorted([m[1] for m in seen["marks"]], reverse=True)[:2] + sorted(m[1] for m in seen["marks"])[:2]
        and [m[2] for m in sorted(seen["marks"], key=lambda m: -m[2])]
        == [seen["marks"][n][2] for n in (2, 3, 1, 0)]
        and all(0 < m[1] < seen["size"][0] and 0 < m[2] < seen["size"][1] for m in seen["marks"]),
        "one roof, as none is above it": lambda: [r[0] for r in seen["roofs"]] == ["roof"]
        and "NaN" not in seen["roofs"][0][1] and seen["roofs"][0][1].count("L") == 2,
        "the last step is told in words": lambda: seen["told"][1]
        == "Last – decode: 2 tokens of 2 sequences in 25.0\u00a0ms, 40\u00a0% of the roof"
        and "10 GB/s, 100 GFLOP/s" in seen["told"][2],
        "nothing breaks its policy": lambda: seen["broken"] == [],
        "what a server says is no markup": lambda: seen["told"][0] == "of " + NAME and seen["foreign"] == [0, True],
    }
    failed = [name for name, holds in checks.items() if "error" in seen or not holds()]
    print(f"the server's page: {'failed: ' + '; '.join(failed) + f' ({seen}, {asked})' if failed else 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
