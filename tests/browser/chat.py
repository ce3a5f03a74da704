#!/usr/bin/env python3
"""Uses the server's page in headless Chromium as a person does: sends messages, begins anew while an answer
comes, meets the most tokens, leaves fields empty, looks at the live view, and chats where a proxy keeps that inside.
In place of a server stands one that streams three words, slowly, keeps what it was asked, and tells of steps; its
policy for the page is the server's.
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
const verdict = (drive) => drive().catch((error) => ({ error: String(error) }))
  .then((seen) => fetch("/verdict", { method: "POST", body: JSON.stringify(seen) }));
"""

SHOWN = """verdict(async () => {
  const seen = {};
  await until(() => at("model").options.length);
  send("one");
  await until(() => last().includes("w0"));
  at("anew").click();
  await until(() => !running);
  seen.anew = [talk.length, at("talk").childNodes.length];
  at("system").value = "be brief";
  at("most").value = "3";
  at("temperature").value = "0.5";
  send("two");
  await until(() => !running);
  seen.most = last();
  for (const id of ["system", "most", "temperature"]) at(id).value = "";
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
  seen.times = [...at("times").rows].map((row) => [...row.cells].map((cell) => cell.textContent));
  seen.foreign = [document.images.length, window.foreign === undefined];
  seen.broken = [...broken];
  // That it is heeded at all.
  at("talk").setAttribute("style", "color: red");
  await until(() => broken.length > seen.broken.length);
  return seen;
});
</script></body>"""

# Behind a proxy that keeps inside what tells of the server.
INSIDE = """verdict(async () => {
  await until(() => at("state").textContent.includes("/metrics"));
  const shown = getComputedStyle(document.querySelector("aside")).display;
  at("model").value = "other";
  send("one");
  await until(() => talk.length === 2 && !running);
  return { shown, state: at("state").className, models: [...at("model").options].map((o) => o.value), said: last() };
});
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


def ttft(looks):
    """Samples in a histogram: of a model that gains three with each look, of one that is unloaded after the first, and
    of one that is loaded anew then and has had three since."""
    models = {"m": 3 * looks, "anew": 3} if looks > 1 else {"m": 3, "gone": 50, "anew": 40}
    return "".join(f'vllm:time_to_first_token_seconds_bucket{{model_name="{model}",le="{le}"}} {count}\n'
                   for model, count in models.items() for le in ["0.1", "1.0", "+Inf"])


class Handler(http.server.BaseHTTPRequestHandler):
    verdicts = queue.Queue()
    asked = []
    drive = SHOWN
    inside = ()
    looks = 0

    def do_GET(self):
        with open(PAGE, encoding="utf-8") as file:
            page = file.read().replace("</body>", DRIVE + self.drive)
        type(self).looks += self.path == "/metrics"
        bodies = {"/": page, "/v1/models": '{"data": [{"id": "m"}, {"id": "other"}]}', "/get_load": "[]",
                  "/steps": json.dumps(STEPS), "/metrics": ttft(self.looks)}
        body = bodies.get(self.path, "").encode()
        self.send_response(404 if self.path in self.inside else 200)
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


class Proxied(Handler):
    verdicts = queue.Queue()
    asked = []
    drive = INSIDE
    inside = ("/metrics", "/steps", "/get_load")


def watch(browser, handler):
    """What a person saw; none where the browser does not work."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    verdict = smoke.watch(browser, f"http://127.0.0.1:{server.server_port}/", handler.verdicts)
    return verdict and json.loads(verdict)


def main():
    browser = smoke.find()
    if browser is None:
        return 2
    seen, proxied = watch(browser, Handler), watch(browser, Proxied)
    if seen is None or proxied is None:
        return 2
    asked = Handler.asked
    checks = {
        "what was stopped is not in the next talk": lambda: seen["anew"] == [0, 0]
        and asked[1]["messages"][1:] == [{"role": "user", "content": "two"}],
        "the system is told what is set": lambda: asked[1]["messages"][0] == {"role": "system", "content": "be brief"}
        and {m["role"] for n in (0, 2) for m in asked[n]["messages"]} == {"user", "assistant"},
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
        "times say of how many they are": lambda: [row[0] for row in seen["times"]] == ["TTFT", "TPOT", "ITL"]
        and seen["times"][0][4] in [str(3 * n) for n in range(1, 100)] and seen["times"][1][1:] == ["–"] * 4,
        "a percentile is told of as many as it needs": lambda: [cell != "–" for cell in seen["times"][0][1:4]]
        == [int(seen["times"][0][4]) >= few for few in (2, 10, 100)],
        "where the live view is kept inside, the chat is there": lambda: proxied["shown"] == "none"
        and proxied["state"] == "" and proxied["models"] == ["m", "other"] and "w2" in proxied["said"]
        and Proxied.asked[0]["model"] == "other",
        "what a server says is no markup": lambda: seen["told"][0] == "of " + NAME and seen["foreign"] == [0, True],
    }
    failed = [name for name, holds in checks.items() if "error" in {**seen, **proxied} or not holds()]
    print(f"the server's page: {'failed: ' + '; '.join(failed) + f' ({seen}, {asked}, {proxied})' if failed else 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
