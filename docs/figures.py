#!/usr/bin/env python3
"""Writes the measured figures into the tables of README.md and docs/compare.md, from bench/results/results.json."""
import json, pathlib, re, statistics

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = {result["name"]: result for result in json.loads((ROOT / "bench/results/results.json").read_text())}
FIELDS = {"CPU of Redis per task: ": "redis_cpu", "CPU of the worker per task: ": "own_cpu"}
ROW = re.compile(r"^\| (" + "|".join(map(re.escape, FIELDS)) + r")?([^|]+) \| [\d.,]+ (\S+) \| [\d.,]+ \S+ \|$", re.M)


def shown(values):
    """Three digits, as many as three rounds can tell."""
    figure = statistics.median(values)
    if figure >= 1000:
        return f"{round(figure, 3 - len(str(int(figure)))):,.0f}"
    return f"{figure:.0f}" if figure >= 100 else f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"


def row(match):
    prefix, name, unit = match.group(1) or "", match.group(2), match.group(3)
    if name not in RESULTS:
        return match.group(0)
    go, ours = (shown(RESULTS[name][side][FIELDS.get(prefix, "values")]) for side in ("go", "ours"))
    return f"| {prefix}{name} | {go} {unit} | {ours} {unit} |"


for page in ("README.md", "docs/compare.md"):
    text = (ROOT / page).read_text()
    (ROOT / page).write_text(ROW.sub(row, text))
