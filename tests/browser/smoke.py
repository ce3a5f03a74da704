#!/usr/bin/env python3
"""Opens the page of `web/` in headless Chromium and waits for its verdict.

usage: smoke.py SITE, where SITE is a folder with index.html and pkg/.

Serves SITE on this machine, adds one page that shows index.html in a frame and sends back what
stands in its #result, and succeeds only if that passes. Python's own library and a Chromium are all
it needs. Exit status: 0 pass, 1 the page failed, 2 the browser did not get that far.
"""

import functools
import http.server
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading

TIMEOUT_S = 180

WATCH = b"""<!DOCTYPE html><iframe src="/index.html"></iframe><script>
const timer = setInterval(() => {
  const result = document.querySelector('iframe').contentDocument?.getElementById('result');
  if (!result || result.dataset.state === 'running') return;
  clearInterval(timer);
  fetch('/verdict', { method: 'POST', body: result.dataset.state + ' ' + result.textContent });
}, 50);
</script>"""


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".wasm": "application/wasm",
    }

    def __init__(self, *args, verdicts, **kwargs):
        self.verdicts = verdicts
        super().__init__(*args, **kwargs)

    def do_GET(self):
        if self.path != "/watch":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(WATCH)))
        self.end_headers()
        self.wfile.write(WATCH)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
        self.verdicts.put(body.decode())

    def log_message(self, format, *args):
        pass


def main():
    if len(sys.argv) != 2 or not os.path.isfile(os.path.join(sys.argv[1], "pkg", "twoclock_web.js")):
        print(__doc__, file=sys.stderr)
        return 2
    names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        print("no Chromium is installed: install one, or name it in CHROMIUM", file=sys.stderr)
        return 2
    verdicts = queue.Queue()
    handler = functools.partial(Handler, directory=sys.argv[1], verdicts=verdicts)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            browser,
            "--headless=new",
            "--no-sandbox",
            # Chromium's own software adapter is refused without it.
            "--enable-unsafe-webgpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-proxy-server",
            f"--user-data-dir={profile}",
            f"http://127.0.0.1:{server.server_port}/watch",
        ]
        log = open(os.path.join(profile, "log"), "w+")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            verdict = verdicts.get(timeout=TIMEOUT_S)
        except queue.Empty:
            log.seek(0)
            print(log.read()[-2000:], file=sys.stderr)
            print(f"the page gave no verdict in {TIMEOUT_S} s (the browser's last words are above)", file=sys.stderr)
            return 2
        finally:
            process.terminate()
            process.wait()
            log.close()
    state, _, text = verdict.partition(" ")
    print(text)
    return 0 if state == "pass" and text.startswith("PASS: residual: ") else 1


sys.exit(main())
