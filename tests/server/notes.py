"""Whether the production notes hold: notes.py BASE TWOCLOCK, from the root, beside a server that has answered.

- Every metric and label that the dashboard and the alerts ask for is there.
- Every flag of `serve` stands once in README.md's tables of the server, with its default.
- Every flag and path that the service and the proxy name exists.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request

import yaml

# What Prometheus adds to a sample by itself, and the metric it makes.
ADDED_LABELS = {"job", "instance"}
ADDED_METRICS = {"up"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def samples(text):
    """The labels of each sample's name."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels = re.fullmatch(r"([\w:]+)(?:\{(.*)\})? \S+", line).groups()
            found.setdefault(name, set()).update(re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', labels or ""))
    return found


def dashboard_expressions(path):
    board = json.loads(read(path))
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']!r}", target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            yield f"variable {variable['name']!r}", f"sum by ({label}) ({metric})"


def alert_expressions(path):
    for group in yaml.safe_load(read(path))["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']!r}", rule["expr"]


def check_expression(where, expression, there):
    """Its metrics and labels are there; how it is built is for promtool."""
    labels = set()
    for listed in re.findall(r"\bby \(([^)]*)\)", expression):
        labels |= {label.strip() for label in listed.split(",")}
    # Without them and the spans of time, what has a colon or is no function is a metric.
    rest = re.sub(r"\bby \([^)]*\)|\[[^]]*\]", "", expression)
    names = []
    for name, matchers in re.findall(r"([a-zA-Z_][\w:]*)(?:\{([^}]*)\})?(?!\w|\s*\()", rest):
        if ":" in name or name in ADDED_METRICS:
            names.append(name)
            labels |= set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", matchers))
    faults = []
    if not names:
        faults.append(f"{where}: no metric is found in {expression}")
    known = set(ADDED_LABELS)
    for name in names:
        if name not in there and name not in ADDED_METRICS:
            faults.append(f"{where}: there is no metric {name}")
        known |= there.get(name, set())
    faults += [f"{where}: no label {label} is in {', '.join(names)}" for label in sorted(labels - known)]
    return faults


def flags_of_help(text):
    """Flags and their defaults, `None` where there is none."""
    found = {}
    current = None
    for line in text.splitlines():
        if flag := re.match(r" {2,6}(?:-\w, )?(--[a-z][\w-]*)", line):
            current = flag[1]
            found[current] = None
        elif (default := re.match(r"\s+\[default: (\S+)\]$", line)) and current:
            found[current] = default[1]
    return found


def check_readme(flags, text):
    section = text.split("\n## The server\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `-")]
    listed = {}
    for names, default in rows:
        of_row = re.findall(r"--[a-z][\w-]+", names)
        defaults = default.split(",") if len(of_row) > 1 else [default]
        # One default may be that of all flags of a row.
        defaults = defaults * len(of_row) if len(defaults) == 1 else defaults
        for flag, said in zip(of_row, defaults, strict=True):
            listed.setdefault(flag, []).append(said.split()[0] if said.strip() else "")
    faults = []
    for flag, default in flags.items():
        said = listed.pop(flag, [])
        if len(said) != 1:
            faults.append(f"README.md: {flag} stands {len(said)} times in the tables")
        elif default is not None and said[0] != default:
            faults.append(f"README.md: {flag} is {default} by default, not {said[0]!r}")
    return faults + [f"README.md: there is no flag {flag}" for flag in listed]


def main():
    base, twoclock = sys.argv[1:]
    key = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}

    def ask(path):
        with urllib.request.urlopen(urllib.request.Request(base + path, headers=key), timeout=30) as reply:
            return reply.read().decode()

    there = samples(ask("/metrics"))
    asked = [
        *dashboard_expressions("native/deploy/grafana-dashboard.json"),
        *alert_expressions("native/deploy/alerts.yml"),
    ]
    faults = [fault for where, expression in asked for fault in check_expression(where, expression, there)]

    text = subprocess.run([twoclock, "serve", "--help"], capture_output=True, check=True, text=True).stdout
    flags = flags_of_help(text)
    aliases = set(re.findall(r"\[alias: (--[\w-]+)\]", text))
    del flags["--help"]
    faults += check_readme(flags, read("README.md"))
    for file in ["twoclock.service", "nginx.conf", "alerts.yml", "grafana-dashboard.json"]:
        said = re.findall(r"(?<![\w-])--[a-z][\w-]+", read(f"native/deploy/{file}"))
        # Of another program.
        said = set(said) - {"--now"}
        faults += [f"{file}: there is no flag {flag}" for flag in sorted(said - flags.keys() - aliases)]
    paths = json.loads(ask("/openapi.json"))["paths"].keys()
    named = set(re.findall(r"location = (\S+)", read("native/deploy/nginx.conf")))
    named |= {job["metrics_path"] for job in yaml.safe_load(read("native/deploy/prometheus.yml"))["scrape_configs"]}
    faults += [f"there is no path {path}" for path in sorted(named - paths)]

    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        sys.exit(1)
    print(f"production notes: {len(asked)} expressions, {len(flags)} flags")


main()
