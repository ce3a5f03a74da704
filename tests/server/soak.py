"""Random load on a server for a while: whole and streamed answers, each held against what the same request was
answered when it was alone; clients that go, clients that read slowly, requests that mean nothing. At the end all
must be free, and the process no larger than it was a while after the beginning.

    python3 tests/server/soak.py http://127.0.0.1:8000 MODEL PID --seconds 900
"""

import argparse
import asyncio
import collections
import json
import random
import time
import urllib.parse

arguments = argparse.ArgumentParser()
arguments.add_argument("base")
arguments.add_argument("model")
arguments.add_argument("pid", type=int, help="of the server, whose memory is watched")
arguments.add_argument("--seconds", type=float, default=900)
arguments.add_argument("--clients", type=int, default=24)
arguments.add_argument("--seed", type=int, default=0)
arguments = arguments.parse_args()
place = urllib.parse.urlsplit(arguments.base)
draw = random.Random(arguments.seed)
counts = collections.Counter()
waits = []


def request(body, path="/v1/completions"):
    body = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def ask(number):
    """One of many requests, always the same by its number."""
    own = random.Random(number)
    prompt = [own.randrange(1, 250) for _ in range(own.choice([3, 20, 70, 200]))]
    return {"model": arguments.model, "prompt": prompt, "max_tokens": own.choice([1, 8, 40, 120]), "seed": number,
            "temperature": own.choice([0, 1]), "ignore_eos": True, "n": own.choice([1, 1, 1, 2])}


async def connect(sent):
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def whole(body):
    reader, writer = await connect(request(body))
    answer = await reader.read()
    writer.close()
    head, _, text = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(text)


async def streamed(body, pause=0.0):
    reader, writer = await connect(request({**body, "stream": True}))
    texts, ended, last = collections.defaultdict(str), False, None
    async for line in reader:
        if pause:
            await asyncio.sleep(pause)
        if not line.startswith(b"data: "):
            continue
        if line == b"data: [DONE]\n":
            ended = True
            continue
        now = time.monotonic()
        if last and not pause:
            waits.append(now - last)
        last = now
        choice = json.loads(line[6:])["choices"][0]
        texts[choice["index"]] += choice["text"]
    writer.close()
    return ended, [texts[index] for index in range(body["n"])]


async def client(expected, end):
    while time.monotonic() < end:
        number = draw.randrange(len(expected))
        kind = draw.choices(["whole", "stream", "slow", "gone", "wrong"], [4, 6, 1, 3, 2])[0]
        body = ask(number)
        if kind == "whole":
            status, answer = await whole(body)
            if status == 429:
                counts["429"] += 1
                continue
            assert status == 200, answer
            assert [c["text"] for c in answer["choices"]] == expected[number], f"request {number} is mixed up"
        elif kind in ("stream", "slow"):
            ended, texts = await streamed(body, 0.05 if kind == "slow" else 0)
            assert ended and texts == expected[number], f"request {number} is mixed up"
        elif kind == "gone":
            _, writer = await connect(request({**body, "stream": draw.random() < 0.5, "max_tokens": 200}))
            await asyncio.sleep(draw.random() * 0.3)
            writer.transport.abort()
        else:
            wrong = draw.choice([{"temperature": -1}, {"prompt": [10**9]}, {"n": 0}, {"prompt": [1] * 5000}, {"stop": 5}])
            status, answer = await whole({**body, **wrong})
            assert status == 400 and answer["error"]["param"], answer
        counts[kind] += 1


def resident():
    for line in open(f"/proc/{arguments.pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024


async def get(path):
    reader, writer = await connect(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return json.loads(answer.partition(b"\r\n\r\n")[2])


async def main():
    expected = []
    for number in range(40):
        status, answer = await whole(ask(number))
        assert status == 200, answer
        expected.append([choice["text"] for choice in answer["choices"]])
    start = time.monotonic()
    end = start + arguments.seconds
    clients = [asyncio.create_task(client(expected, end)) for _ in range(arguments.clients)]
    # Of each look when it was, in seconds, and the process's size then.
    looks = []
    while time.monotonic() < end:
        await asyncio.sleep(min(5, arguments.seconds / 20))
        looks.append((time.monotonic() - start, resident()))
        for task in clients:
            if task.done():
                task.result()
    await asyncio.gather(*clients)
    for _ in range(100):
        load = (await get("/get_load"))[0]
        if load["num_reqs"] == 0 and load["kv_cache_usage"] == 0:
            break
        await asyncio.sleep(0.05)
    else:
        raise AssertionError(f"something is held: {load}")
    # A third of the time is for it to grow to its size.
    sizes = [size for at, size in looks if at > arguments.seconds / 3]
    mean = sum(sizes) / len(sizes)
    spread = max(abs(size - mean) for size in sizes) / mean
    waits.sort()
    # One that comes and goes is told from one that grows by the least and the most of each minute.
    minutes = collections.defaultdict(list)
    for at, size in looks:
        minutes[at // 60].append(size)
    print(json.dumps({"requests": counts, "rss_mib": [round(min(sizes), 1), round(max(sizes), 1)],
                      "rss_spread": round(spread, 4), "itl_p95_ms": round(waits[len(waits) * 95 // 100] * 1e3, 2),
                      "rss_mib_of_minutes": [[round(min(of), 1), round(max(of), 1)] for of in minutes.values()]}))
    assert spread <= 0.05, "the process grew or shrank by more than 5 %"


asyncio.run(main())
