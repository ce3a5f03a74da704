"""What hostile clients cost the others: the 95th percentile of the time between tokens while they are at work, over
what it is with well-behaved ones in their place. Quiet and hostile spans take turns, so that what else the machine
does meets both alike; and what hostile clients have computed, as many others ask for in quiet spans, since to share
a device is no harm.

    python3 tests/server/hostile.py http://127.0.0.1:8000 MODEL --seconds 60

Streams of well-behaved clients are read by this process; each kind of hostile client is a process of its own:

- killed: clients of whole and streamed answers that are killed (SIGKILL) while they are computed, one at a time
- deaf: two that do not read what they asked for, and go after a while
- silent: sockets that say nothing, or stop in the middle of a head or a body, 100 of them
- headers: requests with 10,000 headers
- huge: bodies of 100 MB, with their length said before and without
- loris: heads that come a byte at a time, on 200 connections

The time between tokens is taken from what a client reads, and beside it from the server's own histogram, which knows
nothing of how busy this process is; `lag` is how late this process itself woke up. Every answer must be whole and
what the same request was answered before; at the end nothing may be held. The key is in OPENAI_API_KEY.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import time
import urllib.parse
import urllib.request

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("base")
arguments.add_argument("model")
arguments.add_argument("--seconds", type=float, default=60)
arguments.add_argument("--clients", type=int, default=4, help="streams that are measured")
arguments.add_argument("--rate", type=float, default=5, help="acts a second of each kind of hostile client, at most")
arguments.add_argument("--tokens", type=int, default=100, help="of each of their answers")
arguments.add_argument("--spans", type=int, default=3, help="times that quiet and hostile spans take turns")
arguments.add_argument("--most", type=float, default=3, help="ratio that must not be passed")
arguments = arguments.parse_args()
place = urllib.parse.urlsplit(arguments.base)
address = (place.hostname, place.port)
key = os.environ.get("OPENAI_API_KEY")
head_of_all = f"Host: {place.netloc}\r\nContent-Type: application/json\r\n"
head_of_all += f"Authorization: Bearer {key}\r\n" if key else ""
PATH = "/v1/completions"


def request(body, more=""):
    body = json.dumps(body)
    head = f"POST {PATH} HTTP/1.1\r\n{head_of_all}{more}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def get(path):
    asked = urllib.request.Request(arguments.base + path, headers={"Authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(asked, timeout=30) as reply:
        return reply.read().decode()


# Hostile clients. Each is called again and again, with what it may keep between two calls.

LONG = {"model": arguments.model, "prompt": [1, 2, 3], "max_tokens": 400, "ignore_eos": True}


def killed(_):
    body = {**LONG, "stream": random.random() < 0.5}
    child = os.fork()
    if child == 0:
        try:
            with socket.create_connection(address) as client:
                client.sendall(request(body))
                while client.recv(4096):
                    pass
        finally:
            os._exit(0)
    time.sleep(random.uniform(0.05, 1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def deaf(kept):
    if len(kept) == 2:
        time.sleep(2)
        kept.pop(0).close()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    client.connect(address)
    client.sendall(request({**LONG, "stream": True}))
    kept.append(client)


def silent(kept):
    whole = request(LONG)
    client = socket.create_connection(address)
    client.sendall(random.choice([b"", whole[:30], whole[:-5]]))
    if random.random() < 0.3:
        client.shutdown(socket.SHUT_WR)
    kept.append(client)
    if len(kept) > 100:
        kept.pop(0).close()


def headers(_):
    many = "".join(f"X-{number}: y\r\n" for number in range(10_000))
    with socket.create_connection(address) as client:
        client.settimeout(30)
        send(client, request({}, many))
        assert client.recv(4096).startswith(b"HTTP/1.1 431"), "10,000 headers were taken"


def huge(_):
    size = 100 << 20
    says = random.random() < 0.5
    length = f"Content-Length: {size}" if says else "Transfer-Encoding: chunked"
    with socket.create_connection(address) as client:
        client.settimeout(30)
        client.sendall(f"POST {PATH} HTTP/1.1\r\n{head_of_all}{length}\r\n\r\n".encode())
        piece = b" " * (1 << 20)
        if not says:
            piece = b"100000\r\n" + piece + b"\r\n"
        for _ in range(100):
            if not send(client, piece):
                break
        else:
            raise AssertionError("100 MB were read")


def loris(kept):
    if len(kept) < 200:
        client = socket.create_connection(address)
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
        kept.append(client)
        return
    for client in list(kept):
        if not send(client, b"y"):
            kept.remove(client)
    time.sleep(1)


def send(client, piece):
    """Whether the server still takes it."""
    try:
        client.sendall(piece)
        return True
    except (BrokenPipeError, ConnectionResetError):
        return False


def companion(_):
    """What is computed for a hostile client, for one that behaves."""
    with socket.create_connection(address) as client:
        client.sendall(request({**LONG, "stream": True}))
        while client.recv(65536):
            pass


KINDS = [killed, deaf, silent, headers, huge, loris]
# As many as those of the hostile that have something computed.
COMPANIONS = [companion] * 3


def work(kinds, kind, counts):
    # Ended with all that it forks.
    os.setpgid(0, 0)
    kept = []
    while True:
        began = time.monotonic()
        try:
            kinds[kind](kept)
        except (ConnectionError, TimeoutError):
            time.sleep(0.1)
        counts[kind] += 1
        time.sleep(max(0, began + 1 / arguments.rate - time.monotonic()))


# Well-behaved clients.


def ask(number):
    own = random.Random(number)
    prompt = [own.randrange(1, 250) for _ in range(own.choice([3, 20, 70]))]
    return {"model": arguments.model, "prompt": prompt, "max_tokens": arguments.tokens, "temperature": 0,
            "ignore_eos": True, "stream": True}


async def stream(number, waits):
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request(ask(number)))
    last, text, ended = None, "", False
    async for line in reader:
        if line == b"data: [DONE]\n":
            ended = True
        elif line.startswith(b"data: "):
            now = time.monotonic()
            if last:
                waits.append(now - last)
            last = now
            text += json.loads(line[6:])["choices"][0]["text"]
    writer.close()
    assert ended, "an answer was cut"
    return text


async def client(expected, waits, end, counted):
    while time.monotonic() < end:
        number = random.randrange(len(expected))
        assert await stream(number, waits) == expected[number], f"request {number} is mixed up"
        counted.append(number)


async def lag(late, end):
    while time.monotonic() < end:
        begin = time.monotonic()
        await asyncio.sleep(0.005)
        late.append(time.monotonic() - begin - 0.005)


async def measure(expected, seconds, waits, late, counted):
    end = time.monotonic() + seconds
    clients = [client(expected, waits, end, counted) for _ in range(arguments.clients)]
    await asyncio.gather(lag(late, end), *clients)


def histogram():
    """The server's counts of times between tokens, by their upper bounds."""
    bounds = {}
    for line in get("/metrics").splitlines():
        if line.startswith("vllm:inter_token_latency_seconds_bucket") and f'"{arguments.model}"' in line:
            bound = line.split('le="')[1].split('"')[0]
            bounds[float(bound.replace("+Inf", "inf"))] = float(line.rsplit(" ", 1)[1])
    return bounds


def of_histogram(counts, part):
    """A percentile by the bounds of its bucket, between which values are taken to lie evenly; none where the first
    bucket has it, which says nothing of how far below its bound that is."""
    whole = max(counts.values())
    below, reached = None, 0.0
    for bound, count in sorted(counts.items()):
        if count >= part * whole:
            if below is None or bound == float("inf"):
                return below
            return below + (bound - below) * (part * whole - reached) / max(count - reached, 1)
        below, reached = bound, count
    return below


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


async def main():
    expected = [await stream(number, []) for number in range(12)]
    seconds = arguments.seconds / arguments.spans / 2
    names = ["quiet", "hostile"]
    waits, late, counted = ({name: [] for name in names} for _ in range(3))
    of_server = {name: {} for name in names}
    counts, of_companions = (multiprocessing.Array("L", len(kinds)) for kinds in (KINDS, COMPANIONS))
    for _ in range(arguments.spans):
        for name in names:
            kinds, counted_there = (KINDS, counts) if name == "hostile" else (COMPANIONS, of_companions)
            others = [multiprocessing.Process(target=work, args=(kinds, kind, counted_there), daemon=True)
                      for kind in range(len(kinds))]
            for other in others:
                other.start()
            await asyncio.sleep(0.5)
            before = histogram()
            await measure(expected, seconds, waits[name], late[name], counted[name])
            for bound, count in histogram().items():
                of_server[name][bound] = of_server[name].get(bound, 0) + count - before[bound]
            for other in others:
                assert other.is_alive(), "a client found a fault (above)"
                os.killpg(other.pid, signal.SIGKILL)
                other.join()
            await asyncio.sleep(1)
    for _ in range(200):
        load = next(load for load in json.loads(get("/get_load")) if load["model"] == arguments.model)
        if load["num_reqs"] == 0 and load["kv_cache_usage"] == 0:
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError(f"something is held: {load}")
    assert json.loads(get("/health"))["status"] == "ok"
    p95 = {name: percentile(waits[name], 0.95) for name in names}
    server = {name: of_histogram(of_server[name], 0.95) for name in names}
    ratio = {"client": p95["hostile"] / p95["quiet"]}
    if server["quiet"] and server["hostile"]:
        ratio["server"] = server["hostile"] / server["quiet"]
    print(json.dumps({
        "hostile": {kind.__name__: counts[index] for index, kind in enumerate(KINDS)},
        "answers": {name: len(counted[name]) for name in names},
        "intervals": {name: len(waits[name]) for name in names},
        "itl_p50_ms": {name: round(percentile(waits[name], 0.5) * 1e3, 2) for name in names},
        "itl_p95_ms": {name: round(p95[name] * 1e3, 2) for name in names},
        "itl_p99_ms": {name: round(percentile(waits[name], 0.99) * 1e3, 2) for name in names},
        "server_itl_p95_ms": {name: value and round(value * 1e3, 2) for name, value in server.items()},
        "lag_p95_ms": {name: round(percentile(late[name], 0.95) * 1e3, 2) for name in names},
        "itl_p95_ratio": {name: round(value, 2) for name, value in ratio.items()},
    }, indent=1))
    if max(ratio.values()) > arguments.most:
        sys.exit(f"hostile clients cost the others more than {arguments.most} times")


if __name__ == "__main__":
    asyncio.run(main())
