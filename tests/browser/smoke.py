#!/usr/bin/env python3
"""Opens pages in headless Chromium and waits for their verdicts.

usage: smoke.py SITE, where SITE is a folder with index.html and pkg/ (the page of `web/`), and
shaders.html and shaders.json (every variant of every kernel).

Serves SITE on this machine, adds one page that shows each of those in a frame and sends back what
stands in its #result, and succeeds only if all pass. Python's own library and a Chromium are all it
needs. Exit status: 0 pass, 1 a page failed, 2 the browser did not get that far.
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

# Each page, and how its verdict begins when it has really done its work.
PAGES = {
    "index.html": "PASS: residual: ",
    "shaders.html": "PASS: shaders: ",
}

WATCH = b"""<!DOCTYPE html><iframe></iframe><script>
document.querySelector('iframe').src = location.search.slice(1);
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
        if not self.path.startswith("/watch"):
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
    browser = find()
    if browser is None:
        return 2
    verdicts = queue.Queue()
    handler = functools.partial(Handler, directory=sys.argv[1], verdicts=verdicts)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    status = 0
    for page, pass_text in PAGES.items():
        url = f"http://127.0.0.1:{server.server_port}/watch?/{page}"
        verdict = watch(browser, url, verdicts)
        if verdict is None:
            return 2
        state, _, text = verdict.partition(" ")
        print(f"{page}: {text}")
        if state != "pass" or not text.startswith(pass_text):
            status = 1
    return status


def find():
    """A Chromium; None where there is none, which is said."""
    names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        print("no Chromium is installed: install one, or name it in CHROMIUM", file=sys.stderr)
    return browser


def watch(browser, url, verdicts):
    """The verdict of one page; None where the browser gives none."""
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
            url,
        ]
        log = open(os.path.join(profile, "log"), "w+")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            verdict = verdicts.get(timeout=TIMEOUT_S)
        except queue.Empty:
            log.seek(0)
            print(log.read()[-2000:], file=sys.stderr)
            print(f"the page gave no verdict in {TIMEOUT_S} s (the browser's last words are above)", file=sys.stderr)
            return None
        finally:
            process.terminate()
            process.wait()
            log.close()
    return verdict


if __name__ == "__main__":
    sys.exit(main())
