// The token view: pick a run, a step and a prompt; see its responses by side, shaded token by token.

const RANKED = 200; // how far down the most and least credited tokens can be stepped through

class TokenView {
  constructor(root, runs) {
    this.root = root;
    this.runs = runs.filter((run) => run.steps.length);
    this.matches = new Map(); // response number -> set of places
    this.found = []; // the same in order: [text, place]
    this.selected = null;
    this.texts = [];
    this.ranks = null;
    if (!this.runs.length) {
      root.append(nothing("No run has sampled rollouts, so there are no tokens to show."));
      return;
    }
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const { text, block } = target.owner;
        if (isIntersecting) text.open(block);
        else text.close(block);
      }
    }, { rootMargin: "250px", scrollMargin: "250px" });
    this.#build();
    this.ready = this.#chooseRun(0);
  }

  #build() {
    const runPairs = this.runs.map((run, place) => [place, run.label]);
    this.runChoice = choice(runPairs, (place) => this.#chooseRun(Number(place)));
    this.stepSlider = el("input", { type: "range", min: 0, step: 1, oninput: () => this.#chooseStep(Number(this.stepSlider.value)) });
    this.stepOutput = el("output", { className: "step-output" });
    this.promptChoice = choice([], (place) => this.#choosePrompt(Number(place)));
    this.shadingHolder = el("div", { className: "shading" });
    this.search = el("input", {
      type: "search", placeholder: "token or words", autocomplete: "off", spellcheck: false,
      oninput: () => this.#search(), onkeydown: (event) => {
        if (event.key === "Enter") { event.preventDefault(); this.#nextMatch(event.shiftKey ? -1 : 1); }
      },
    });
    this.searchOutput = el("output", { className: "search-output", "aria-live": "polite" });
    const jump = (label, direction) =>
      el("button", { type: "button", onclick: () => this.#jump(direction) }, label);
    this.jumpMost = jump("Most credited", 1);
    this.jumpLeast = jump("Least credited", -1);
    this.jumpOutput = el("output", { className: "search-output", "aria-live": "polite" });
    this.note = el("p", { className: "note" });
    this.promptBox = el("div", { className: "prompt" });
    this.responses = el("div", { className: "responses" });
    this.details = el("div", { className: "details", role: "status", "aria-live": "polite", "aria-label": "Token details" });
    const runField = field("Run", this.runChoice);
    runField.hidden = this.runs.length === 1;
    this.root.append(
      el("div", { className: "toolbar" }, runField, field("Step", this.stepSlider, this.stepOutput),
        field("Prompt", this.promptChoice)),
      el("div", { className: "toolbar second" }, this.shadingHolder, field("Search", this.search, this.searchOutput),
        el("div", { className: "field jump" }, el("span", { className: "label" }, "Jump to"), this.jumpMost,
          this.jumpLeast, this.jumpOutput)),
      this.note,
      this.promptBox,
      el("div", {}, this.responses, this.details), // the details stick to the bottom while responses are in view
    );
    this.#show(null);
    this.responses.addEventListener("pointerover", (event) => this.#pointed(event, false));
    this.responses.addEventListener("click", (event) => this.#pointed(event, true));
    this.responses.addEventListener("keydown", (event) => this.#key(event));
    this.responses.addEventListener("focusin", (event) => {
      const text = this.texts.find((candidate) => candidate.element === event.target);
      if (text && this.selected?.text !== text && text.response.tokens.length && event.target.matches(":focus-visible")) {
        this.select(text, 0);
      }
    });
  }

  #chooseRun(place) {
    this.run = this.runs[place];
    this.stepSlider.max = this.run.steps.length - 1;
    this.stepSlider.value = this.run.steps.length - 1;
    this.stepSlider.parentElement.hidden = this.run.steps.length === 1;
    const kept = this.run.shadings.find((shading) => shading.key === this.shading?.key);
    this.#shadeBy(kept ?? this.run.shadings[0] ?? { key: "weight", label: "coefficient", kind: "diverging", span: 0.2 });
    return this.#chooseStep(this.run.steps.length - 1);
  }

  #chooseStep(which) {
    const before = this.step?.prompts[Number(this.promptChoice.value)]?.group;
    this.step = this.run.steps[which];
    this.stepOutput.value = `${number(this.step.step)} of ${number(this.run.steps.at(-1).step)}`;
    this.stepSlider.setAttribute("aria-valuetext", `step ${this.step.step}`);
    this.promptChoice.replaceChildren(...this.step.prompts.map((prompt, index) => {
      const reward = prompt.reward === null ? "" : ` · reward ${number(prompt.reward, 3)}`;
      const signal = prompt.signal ? "" : " · no signal";
      return el("option", { value: index }, `${index + 1}${reward}${signal} · ${visible(prompt.title).replace(/\s+/g, " ")}`);
    }));
    // Stay with the prompt's number; else take the first one from which something is learned.
    const places = [(prompt) => prompt.group === before, (prompt) => prompt.signal, () => true]
      .map((wanted) => this.step.prompts.findIndex(wanted));
    const place = places.find((found) => found >= 0);
    this.promptChoice.value = place;
    return this.#choosePrompt(place);
  }

  /** Draw a prompt's responses part by part. `ready` is done when the first of them stand on the page. */
  #choosePrompt(place) {
    const prompt = this.step.prompts[place];
    this.wanted = prompt;
    this.root.dataset.shown = "";
    return new Promise((resolve, reject) => this.#load(prompt, resolve).catch(reject));
  }

  async #load(prompt, started) {
    for (const [number, name] of prompt.blocks.entries()) {
      const block = await unpack(name);
      if (this.wanted !== prompt) return; // another prompt was chosen meanwhile
      if (number === 0) this.#start(prompt, block);
      this.#append(block.responses);
      if (number === 0) started();
      await new Promise((resolve) => setTimeout(resolve)); // let the page paint and answer
    }
    this.root.dataset.shown = `${this.step.step}/${prompt.group}`;
  }

  #start(prompt, block) {
    this.observer.disconnect();
    this.selected = null;
    this.texts = [];
    this.note.textContent = this.run.left_out ?? "";
    this.promptBox.replaceChildren(el("h3", {}, "Prompt"), el("pre", {}, visible(String(block.prompt ?? "not recorded"))));
    if (block.answer !== null && block.answer !== undefined) {
      this.promptBox.append(el("p", { className: "answer" }, el("span", {}, "Reference answer "), el("bdi", {}, visible(String(block.answer)))));
    }
    const titles = { positive: "Positive advantage", negative: "Negative advantage", zero: "No advantage" };
    const advantages = prompt.sides.positive + prompt.sides.negative > 0;
    this.sides = {};
    for (const [name, title] of Object.entries(titles)) {
      const count = prompt.sides[name];
      if (!count && (name === "zero" || !advantages)) continue;
      this.sides[name] = el("div", { className: `side ${name}` },
        el("h3", {}, title, el("span", { className: "count" }, plural(count, "response"))));
      if (!count) this.sides[name].append(nothing("None in this group."));
      if (!advantages) this.sides[name].append(nothing("All responses to this prompt earned the same reward, so the update learns nothing from them."));
    }
    this.responses.replaceChildren(...Object.values(this.sides));
    this.#show(null);
  }

  #append(responses) {
    this.ranks = null;
    this.jumpOutput.value = "";
    for (const response of responses) {
      const text = new ResponseText(response, this.texts.length, this);
      this.texts.push(text);
      const side = response.advantage > 0 ? "positive" : response.advantage < 0 ? "negative" : "zero";
      this.sides[side].append(this.#card(text));
      for (const { element } of text.blocks) this.observer.observe(element);
    }
    this.#search();
    requestAnimationFrame(() => setTimeout(() => performance.mark("tokens"))); // after the frame that shows them
  }

  #card(text) {
    const { response } = text;
    const facts = [
      ["reward", number(response.reward, 3)],
      ["advantage", signed(response.advantage)],
      ["tokens", number(response.tokens.length)],
    ];
    const head = el("header", {}, el("b", {}, `#${response.index ?? text.number}`),
      ...facts.map(([name, value]) => el("span", { className: "fact" }, el("small", {}, name), " ", value)),
      response.reason ? el("span", { className: "reason" }, el("bdi", {}, visible(String(response.reason)))) : null);
    return el("article", { className: "response", "aria-label": `Response ${response.index ?? text.number}` }, head, text.element);
  }

  #shadeBy(shading) {
    this.shading = shading;
    const pairs = this.run.shadings.map((entry) => [entry.key, entry.label]);
    const rebuild = this.shadingHolder.run !== this.run;
    if (rebuild) {
      this.shadingHolder.run = this.run;
      this.shadingHolder.replaceChildren(segments("shading", "Shade by", pairs, shading.key, (key) =>
        this.#shadeBy(this.run.shadings.find((entry) => entry.key === key))), el("div"));
    }
    this.shadingHolder.lastChild.replaceWith(legend(shading));
    for (const text of this.texts) text.shadeOpen();
  }

  // Selection, by pointer and by keyboard.

  #pointed(event, click) {
    const span = event.target;
    if (span.place === undefined) return;
    const { text } = span.parentElement.owner;
    if (click) this.select(text, span.place, false);
    else this.#show(text, span.place);
  }

  select(text, place, reveal = true) {
    const previous = this.selected;
    this.selected = { text, place };
    if (previous) previous.text.shadeOpen();
    const span = text.span(place);
    span.classList.add("selected");
    this.#show(text, place);
    if (reveal) span.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  #key(event) {
    const text = this.texts.find((candidate) => candidate.element === event.target);
    if (!text || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = text.response.tokens.length - 1;
    const place = this.selected?.text === text ? this.selected.place : -1;
    const moves = {
      ArrowRight: () => Math.min(last, place + 1),
      ArrowLeft: () => Math.max(0, place - 1),
      ArrowDown: () => text.vertical(Math.max(place, 0), 1),
      ArrowUp: () => text.vertical(Math.max(place, 0), -1),
      PageDown: () => Math.min(last, place + 100),
      PageUp: () => Math.max(0, place - 100),
      Home: () => 0,
      End: () => last,
    };
    if (!moves[event.key] || last < 0) return;
    event.preventDefault();
    this.select(text, moves[event.key]());
  }

  #show(text, place) {
    if (!text) {
      this.details.replaceChildren(el("p", { className: "hint" }, "Point at a token, or focus a response and use the arrow keys."));
      return;
    }
    const { response } = text;
    const value = (key) => response[key]?.[place];
    const logp = value("logps");
    const rows = [
      ["coefficient", number(value("weight"), 5)],
      ["probability", number(logp === undefined || logp === null ? undefined : Math.exp(logp), 4)],
      ["entropy", number(value("entropy"), 5)],
      ["margin", number(value("margin"), 5)],
      ["margin before", number(value("margin_initial"), 5)],
      ["alpha", number(value("alpha"), 5)],
      ...Object.entries(response.other_weights ?? {}).map(([name, column]) => [name, number(column[place], 5)]),
      ...(response.decisive ? [["decisive", value("decisive") ? "yes" : "no"]] : []),
    ];
    const token = el("div", { className: "token" }, el("bdi", {}, visibleToken(response.tokens[place])),
      el("small", {}, `token ${number(place + 1)} of ${number(response.tokens.length)}, response #${response.index ?? text.number}`));
    this.details.replaceChildren(token, el("dl", {}, ...rows.map(([name, shown]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, shown)))));
  }

  // Search over the responses' text, so that words of several tokens are found too.

  #search() {
    const query = this.search.value.toLowerCase();
    this.matches = new Map();
    this.found = [];
    this.at = -1;
    if (query) for (const text of this.texts) this.#searchIn(text, query);
    this.searchOutput.value = query ? plural(this.found.length, "match", "matches") : "";
    for (const text of this.texts) text.shadeOpen();
  }

  #searchIn(text, query) {
    const lower = text.response.tokens.map((token) => token.toLowerCase());
    const whole = lower.join("");
    const places = new Set();
    let place = 0;
    let start = 0; // where token `place` begins in `whole`
    for (let hit = whole.indexOf(query); hit >= 0; hit = whole.indexOf(query, hit + query.length)) {
      while (start + lower[place].length <= hit) start += lower[place++].length;
      this.found.push([text, place]);
      for (let next = place, from = start; from < hit + query.length; from += lower[next++].length) places.add(next);
    }
    if (places.size) this.matches.set(text.number, places);
  }

  #nextMatch(direction) {
    if (!this.found.length) return;
    this.at = this.at < 0 && direction < 0 ? this.found.length - 1 : (this.at + direction + this.found.length) % this.found.length;
    this.searchOutput.value = `${number(this.at + 1)} of ${plural(this.found.length, "match", "matches")}`;
    this.select(...this.found[this.at]);
  }

  // Tokens of this prompt by coefficient; pressing again goes to the next in rank.

  #jump(direction) {
    this.ranks ??= { most: this.#extremes(1), least: this.#extremes(-1), at: { most: -1, least: -1 } };
    const name = direction > 0 ? "most" : "least";
    const ranked = this.ranks[name];
    if (!ranked.length) {
      this.jumpOutput.value = "no coefficients here";
      return;
    }
    const rank = (this.ranks.at[name] = (this.ranks.at[name] + 1) % ranked.length);
    const { text, place, weight } = ranked[rank];
    this.jumpOutput.value = `${name}, number ${rank + 1}: ${number(weight, 5)}`;
    this.select(text, place);
  }

  /** The RANKED tokens with the largest (sign 1) or smallest (-1) coefficients, in order. */
  #extremes(sign) {
    const columns = this.texts.map((text) => text.response.weight ?? []);
    const sorted = Float64Array.from(columns.flat().filter((weight) => weight !== null), (weight) => -sign * weight).sort();
    if (!sorted.length) return [];
    const worst = sorted[Math.min(RANKED, sorted.length) - 1];
    const found = [];
    columns.forEach((column, number) => column.forEach((weight, place) => {
      if (weight !== null && -sign * weight <= worst) found.push({ text: this.texts[number], place, weight });
    }));
    return found.sort((a, b) => sign * (b.weight - a.weight)).slice(0, RANKED);
  }
}
