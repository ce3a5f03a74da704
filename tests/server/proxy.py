"""The proxy's file of the production notes before a server, as nginx reads it: what it lets pass, and what it refuses
itself and in which shape. Takes the base URL of the server and the name of its model; the key is in OPENAI_API_KEY.
nginx and openssl must be on the PATH."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse

base, model = sys.argv[1:]
KEY = os.environ["OPENAI_API_KEY"]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def put(text, old, new):
    """The text with something else there, which must be in it."""
    assert old in text, old
    return text.replace(old, new)


def config(home, port, server):
    """The file, on another port, before this server, with certificates of its own, its long times made short."""
    with open("native/deploy/nginx.conf", encoding="utf-8") as file:
        text = file.read()
    text = put(text, "listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    text = put(text, "    listen [::]:443 ssl;\n", "")
    version = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr
    if tuple(map(int, re.search(r"(\d+)\.(\d+)\.(\d+)", version).groups())) < (1, 25, 1):
        text = put(put(text, "    http2 on;\n", ""), " ssl;", " ssl http2;")
    text = put(text, "127.0.0.1:8000", server)
    for name in ["pem", "key"]:
        text = re.sub(rf"/etc/ssl/\w+/\S+\.{name}", f"{home}/{name}", text)
    text = put(text, "/var/log/nginx/twoclock.log", f"{home}/log")
    text = put(text, "client_body_timeout 60s", "client_body_timeout 1s")
    text = put(text, "proxy_read_timeout 610s", "proxy_read_timeout 1s")
    text = put(text, "limit_conn twoclock_clients 64", "limit_conn twoclock_clients 4")
    places = "".join(f"{kind}_temp_path {home}/{kind};\n" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    return f"""daemon off; pid {home}/pid; error_log {home}/errors;
events {{}}
http {{
access_log off;
{places}{text}
}}
"""


class Proxy:
    """nginx with that file."""

    def __init__(self, server):
        self.home = tempfile.mkdtemp()
        self.port = free_port()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", f"{self.home}/key", "-out", f"{self.home}/pem", "-days", "2",
                        "-subj", "/CN=localhost"], check=True, capture_output=True)
        with open(f"{self.home}/conf", "w", encoding="utf-8") as file:
            file.write(config(self.home, self.port, server))
        self.nginx = subprocess.Popen(["nginx", "-c", f"{self.home}/conf", "-e", f"{self.home}/errors"])
        for _ in range(100):
            try:
                return self.connect().close()
            except OSError:
                assert self.nginx.poll() is None, open(f"{self.home}/errors", encoding="utf-8").read()
                time.sleep(0.1)
        raise AssertionError("the proxy does not listen")

    def end(self):
        self.nginx.terminate()
        self.nginx.wait()
        shutil.rmtree(self.home)

    def connect(self):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        return context.wrap_socket(plain, server_hostname="localhost")

    def begin(self, method, path, headers=(), body=b""):
        """A connection that has asked."""
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Authorization: Bearer {KEY}",
                 *headers]
        stream = self.connect()
        stream.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return stream

    def ask(self, *request):
        return read(self.begin(*request))


def read(stream):
    """Status, headers and body, up to where that or the connection ends."""
    got, length = b"", None
    with stream:
        while b"\r\n\r\n" not in got or length is None or len(got.partition(b"\r\n\r\n")[2]) < length:
            piece = stream.recv(1 << 16)
            if not piece:
                break
            got += piece
            known = re.search(rb"\r\ncontent-length: (\d+)\r\n", got, re.IGNORECASE)
            length = int(known[1]) if known else None
    head, _, body = got.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(status.split()[1]), headers, body


def check(answer, status, code, messages_type, path):
    """An error of the proxy, in the shape that its path has."""
    got, headers, body = answer
    assert got == status, (path, answer)
    assert headers["content-type"] == "application/json", (path, answer)
    said = json.loads(body)
    request_id = headers["x-request-id"]
    if path.startswith("/v1/messages"):
        assert said["error"]["type"] == messages_type and said["type"] == "error", (path, said)
        assert said["request_id"] == request_id == headers["request-id"], (path, answer)
    else:
        assert said["error"].keys() == {"message", "type", "param", "code"}, (path, said)
        assert said["error"]["code"] == code and "request-id" not in headers, (path, answer)
    return headers


def main():
    proxy = Proxy(urllib.parse.urlsplit(base).netloc)
    away = Proxy(f"127.0.0.1:{free_port()}")
    silent = socket.create_server(("127.0.0.1", 0))
    late = Proxy(f"127.0.0.1:{silent.getsockname()[1]}")
    try:
        run(proxy, away, late)
    finally:
        for one in (proxy, away, late):
            one.end()


def run(proxy, away, late):
    json_type = "Content-Type: application/json"

    def post(path, body, *headers):
        text = json.dumps(body).encode()
        return ["POST", path, [json_type, f"Content-Length: {len(text)}", *headers], text]

    chat = {"model": model, "messages": [{"role": "user", "content": "the cat"}], "max_tokens": 4}
    paths = ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"]
    for path in paths:
        status, headers, body = proxy.ask(*post(path, chat, "X-Request-Id: mine"))
        assert (status, headers["x-request-id"]) == (200, "mine"), (path, body)
        # What the server refuses it says itself, under an id that it and the proxy have.
        status, headers, body = proxy.ask(*post(path, {**chat, "messages": 5}, 'X-Request-Id: "quoted"'))
        assert status == 400 and b"messages" in body and '"' not in headers["x-request-id"], (path, headers, body)
        assert json.loads(body)["error"]["type"] == "invalid_request_error", (path, body)
        check(away.ask(*post(path, chat)), 502, "server_away", "api_error", path)
        retry = check(late.ask(*post(path, chat)), 504, "server_late", "timeout_error", path)
        assert retry["retry-after"] == "5"
        long = ["POST", path, [json_type, "Content-Length: 9000000"]]
        check(proxy.ask(*long), 413, "body_too_long", "request_too_large", path)
        many = ["GET", path, [f"X: {'y' * 20_000}"] * 3]
        check(proxy.ask(*many), 431, "bad_request", "invalid_request_error", path)
        check(proxy.ask("GET", path, ["X-Request-Id: mine", "Host: other"]), 400, "bad_request",
              "invalid_request_error", path)
        held = [late.begin(*post(path, chat)) for _ in range(4)]
        time.sleep(0.3)
        retry = check(late.ask(*post(path, chat)), 429, "too_many_requests", "rate_limit_error", path)
        assert retry["retry-after"] == "1"
        for stream in held:
            read(stream)
    for path in ["/metrics", "/steps", "/get_load", "/version", "/openapi.json"]:
        check(proxy.ask("GET", path), 404, "unknown_path", None, path)
    stream = {**chat, "stream": True}
    status, _, body = proxy.ask(*post("/v1/chat/completions", stream))
    assert status == 200 and b"data: [DONE]" in body, body
    with open(f"{proxy.home}/log", encoding="utf-8") as log:
        lines = log.read()
    assert re.search(r'"POST /v1/messages" 200 \S+ upstream=200/\S+ id=mine$', lines, re.M), lines
    # What is left: of these no path is known, or nothing is said.
    assert b"<html>" in proxy.ask("GET", "/" + "a" * 9_000)[2]
    assert proxy.begin("POST", paths[0], [json_type, "Content-Length: 9"], b"{").recv(1) == b""
    print("the proxy's file: ok")


main()
