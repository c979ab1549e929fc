"""A page of ours in a browser: how the tests open it, and what they read off it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from contextlib import contextmanager

from delta_rlvr.runs import read_run


def unpacked(path):
    """What a page carries, by the name of the block: "page", and one or more for each prompt."""
    packed = re.findall(r'<script type="application/gzip" id="block-([^"]+)">([^<]+)</script>', path.read_text())
    return {name: json.loads(gzip.decompress(base64.b64decode(block))) for name, block in packed}


@contextmanager
def opened(browser, path, width=1280, height=900, scheme="light", address=""):
    """A page that must stay silent: no console message, no error, no request but for the file itself."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    heard, asked = [], []
    page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (heard.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri() + address)
    page.wait_for_selector("html[data-ready]")
    show_tokens(page)
    yield page
    context.close()
    assert heard == []
    assert [url.split("#")[0] for url in asked] == [path.as_uri()]


def show_tokens(page):
    """Wait for a prompt's responses and bring them into view, where tokens get their elements."""
    if page.locator(".responses").count():
        page.wait_for_selector("#tokens-view[data-shown]:not([data-shown=''])")
        page.evaluate("document.querySelector('.responses').scrollIntoView()")
        page.wait_for_selector(".response-text .t")


def side_texts(page, side):
    show_tokens(page)
    return page.eval_on_selector_all(f".side.{side} .response-text", "texts => texts.map(text => text.textContent)")


def shown(tokens):
    return "".join(tokens).replace("\n", "↵\n")


def set_range(page, selector, value):
    page.eval_on_selector(
        selector, "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", str(value)
    )


def details(page):
    """The readout: its facts, and for every other method its weight."""
    names = page.locator(".details dt, .details tbody th").all_text_contents()
    values = page.locator(".details dd, .details tbody td:nth-child(2)").all_text_contents()
    return dict(zip(names, values, strict=True))


def spoken(text):
    """A number as the page writes it."""
    return float(text.removesuffix(" %").replace(",", "").replace("\N{MINUS SIGN}", "-"))


def wait_for_prompt(page, step, group):
    page.wait_for_selector(f"#tokens-view[data-shown='{step}/{group}']")


def responses_of(path):
    """The responses that a page's token view is made of."""
    return [response for block in unpacked(path).values() for response in block.get("responses", ())]


def first_response(page, stored, step):
    """The first response of the positive side, as it is stored."""
    group = int(page.input_value("#tokens select >> nth=1"))
    return next(r for r in stored[step][group] if r["advantage"] > 0)


def change_rollouts(run, step, change):
    """The sampled step with every response as `change(number, response)` leaves it."""
    file = run / "rollouts" / f"step_{step:06d}.jsonl.gz"
    responses = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    for number, response in enumerate(responses):
        change(number, response)
    file.write_bytes(gzip.compress("".join(json.dumps(one) + "\n" for one in responses).encode()))


def stored_responses(run_folder):
    """What the page should show: step -> group -> responses in the page's order."""
    run = read_run(run_folder)
    steps = {}
    for step in run.rollout_steps:
        groups = {}
        for response in run.rollouts(step):
            groups.setdefault(response["group"], []).append(response)
        steps[step] = {g: sorted(members, key=lambda r: -r["advantage"]) for g, members in groups.items()}
    return steps
