"""Frames per second of the report's token view: a page with responses of 20,000 tokens, in a headless Chromium.

    python benchmarks/report_frames.py
    python benchmarks/report_frames.py --tokens 60000 --json frames.json

The page repeats, for a few seconds each, what a reader does: move the pointer over tokens, scroll the page, scroll a response,
and scroll a response with a second method beside the first. "nothing" is the page at rest. At 60 frames per second a frame has
16.7 ms. The table has the frames that the browser drew, and the processor time of the page's main thread: the mean per frame and the
longest task. Other programs on the machine slow the clock down but not the processor time, so the bar is on its mean.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from delta_rlvr.report import write_report
from delta_rlvr.runs import RunDescription, RunWriter

BUDGET = 1000 / 60
WORDS = [
    "So",
    " first",
    " we",
    " add",
    " the",
    " sum",
    " of",
    "\n",
    " and",
    " is",
    " 17",
    ".",
    " x",
    " =",
    " 4",
    " Hence",
]


def make_run(folder: Path, responses: int, tokens: int) -> Path:
    """One step with one prompt: long responses on both sides, every column that the token view can show."""
    draw = np.random.default_rng(0)
    description = RunDescription("minimal", "delta", 0, "made up", "made up", steps_planned=1)
    with RunWriter.create(folder, description) as writer:
        lines = []
        for index in range(responses):
            weight = 0.8 + 0.4 * draw.random(tokens)
            lines.append(
                {
                    "group": 0,
                    "index": index,
                    "prompt": "A made-up problem.",
                    "reward": float(index % 2),
                    "advantage": 1.0 if index % 2 else -1.0,
                    "tokens": [WORDS[number] for number in draw.integers(0, len(WORDS), tokens)],
                    "logps": np.log(draw.beta(8, 1.2, tokens)),
                    "entropy": draw.random(tokens),
                    "alpha": draw.random(tokens),
                    "margin": draw.normal(size=tokens),
                    "margin_initial": draw.normal(size=tokens),
                    "weight": weight,
                    "decisive": draw.random(tokens) < 0.05,
                    "other_weights": {"other": 2 * draw.random(tokens)},
                }
            )
        writer.log({"step": 1, "reward": 0.5})
        writer.write_rollouts(1, lines)
    return folder


def frames(browser: Browser, page: Page, action: str, seconds: float) -> dict[str, float]:
    """Do `action` once per frame for some seconds: frames per second by the clock, and the main thread's processor time per frame."""
    browser.start_tracing(
        page=page, categories=["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]
    )
    times: list[float] = page.evaluate(
        """([action, seconds]) => new Promise((resolve) => {
          const times = [];
          const spans = [...document.querySelectorAll(".side.positive .response-text .t")];
          const act = { nothing: () => {}, page: (n) => scrollBy(0, n % 120 < 60 ? 24 : -24),
            response: (n) => { document.querySelector(".response-text").scrollTop += 40; },
            pointer: (n) => spans[n % spans.length].dispatchEvent(new PointerEvent("pointerover", { bubbles: true })) }[action];
          const frame = (now) => {
            times.push(now);
            if (now - times[0] > 1000 * seconds) { resolve(times); return; }
            act(times.length);
            requestAnimationFrame(frame);
          };
          requestAnimationFrame(frame);
        })""",
        [action, seconds],
    )
    work = main_thread(json.loads(browser.stop_tracing())["traceEvents"])
    gaps = [after - before for before, after in pairwise(times)]
    return {
        "frames_per_second": 1000 * len(gaps) / (times[-1] - times[0]),
        "median_gap_ms": statistics.median(gaps),
        "cpu_ms_per_frame": sum(work) / len(gaps),
        "busiest_task_cpu_ms": max(work),
    }


def main_thread(events: list[dict[str, Any]]) -> list[float]:
    """Processor milliseconds of each task on the page's main thread: of all renderers' main threads, the busiest."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    tasks = defaultdict(list)
    for event in events:
        if event.get("name") == "RunTask" and names.get((event["pid"], event["tid"])) == "CrRendererMain":
            tasks[event["pid"]].append(event.get("tdur", event.get("dur", 0)) / 1000)
    return max(tasks.values(), key=sum)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=20_000, help="tokens per response (default: %(default)s)")
    parser.add_argument("--responses", type=int, default=4, help="responses on the page (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        parser.error("there is no Chromium on this machine: install the package chromium")
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="delta-rlvr-frames-") as folder, sync_playwright() as playwright:
        run = make_run(Path(folder) / "run", arguments.responses, arguments.tokens)
        report = write_report([run], Path(folder) / "report.html")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(report.as_uri() + "#tokens")
        page.wait_for_selector("#tokens-view[data-shown]:not([data-shown=''])")
        page.wait_for_selector(".response-text .t")
        for action in ("nothing", "pointer", "page", "response"):
            results[action] = frames(browser, page, action, arguments.seconds)
        page.select_option("#tokens select >> nth=3", "share:other:other")
        results["two bands"] = frames(browser, page, "response", arguments.seconds)
        version = browser.version
        browser.close()
    print(
        f"{arguments.responses} responses of {arguments.tokens:,} tokens, Chromium {version}; a frame has {BUDGET:.1f} ms"
    )
    print(f"{'':12}{'frames/s':>10}{'median gap':>12}{'cpu/frame':>13}{'busiest task':>14}")
    for name, result in results.items():
        print(
            f"{name:12}{result['frames_per_second']:10.1f}{result['median_gap_ms']:9.1f} ms{result['cpu_ms_per_frame']:10.1f} ms"
            f"{result['busiest_task_cpu_ms']:11.1f} ms"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"chromium": version, **results}, indent=2) + "\n")
    return int(any(result["cpu_ms_per_frame"] > BUDGET for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
