// The token view: pick a run, a step and a prompt; see its responses by side, shaded token by token.

const RANKED = 200; // how far down the highest and lowest tokens can be stepped through
const FRAME_WORK = 5; // milliseconds of a frame's 16.7
const SHOWN_FIRST = 8; // responses that are shaded before a first frame: pictures of the page may have none

class TokenView {
  constructor(root, runs) {
    this.root = root;
    this.selected = null;
    this.texts = [];
    this.ranks = null;
    this.coming = new Set(); // blocks that come into view
    this.observer = new IntersectionObserver((entries) => {
      for (const { target: { owner }, isIntersecting } of entries) {
        if (isIntersecting) this.coming.add(owner);
        else if (!this.coming.delete(owner)) owner.text.close(owner.block);
      }
      this.#open();
    }, { rootMargin: "250px", scrollMargin: "250px" });
    addEventListener("beforeprint", () => this.texts.forEach((text) => text.blocks.forEach((block) => text.open(block))));
    this.#build(runs.filter((run) => run.steps.length));
    this.ready = this.follow(looking.shown);
  }

  /** Open what comes into view, a few milliseconds' worth in each frame: scrolling stays smooth. */
  #open() {
    const end = performance.now() + FRAME_WORK;
    for (const owner of this.coming) {
      if (performance.now() > end) {
        requestAnimationFrame(() => this.#open());
        return;
      }
      this.coming.delete(owner);
      owner.text.open(owner.block);
    }
  }

  #build(runs) {
    this.picker = new RunAndStep(runs, (run) => run.steps.map(({ step }) => step), (run, at) => this.#chooseStep(run, run.steps[at]));
    this.promptChoice = choice([], (place) => looking.show({ prompt: this.step.prompts[place].group }));
    this.shadeChoice = choice([], (shade) => looking.show({ shade }));
    this.besideChoice = choice([], (beside) => looking.show({ beside }));
    this.legends = [el("div"), el("div")];
    this.decisiveLegend = el("p", { className: "legend-decisive" }, el("span", { className: "t decisive" }, "abc"), " decisive token: the answer turns on it");
    this.search = new Search(this);
    const jump = (label, direction) => el("button", { type: "button", onclick: () => this.#jump(direction) }, label);
    this.jumpOutput = el("output", { className: "search-output", "aria-live": "polite" });
    this.reading = el("p", { className: "reading" });
    this.note = el("p", { className: "note" });
    this.promptBox = el("div", { className: "prompt" });
    this.responses = el("div", { className: "responses" });
    this.details = el("div", { className: "details", role: "status", "aria-live": "polite", "aria-label": "Token details",
      onclick: () => this.details.classList.toggle("whole") });
    this.root.append(el("div", { className: "token-body" },
      el("div", { className: "toolbar" }, ...this.picker.fields, field("Prompt", this.promptChoice)),
      el("aside", { className: "inspector", "aria-label": "Shading, details and search" },
        el("div", { className: "shading" }, el("div", {}, field("Shade by", this.shadeChoice), this.legends[0]),
          el("div", {}, field("Beside it", this.besideChoice), this.legends[1]), this.decisiveLegend),
        this.details,
        el("div", { className: "field jump" }, el("span", { className: "label" }, "Jump to the token with the"),
          jump("Highest", 1), jump("Lowest", -1), this.jumpOutput),
        this.search.element),
      el("div", { className: "token-main" }, this.reading, this.note, this.promptBox, this.responses)));
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

  /** Show what is asked for, as far as it is there. Resolves when the first responses stand on the page. */
  follow(shown) {
    this.asked = shown;
    this.loaded = Promise.resolve();
    if (!this.picker.follow(shown)) {
      this.#chooseShadings();
      const place = this.#placeOf((prompt) => String(prompt.group) === shown.prompt?.toString());
      if (place !== undefined && this.step.prompts[place] !== this.wanted) this.#choosePrompt(place);
    }
    const { run, step, wanted, shading, beside } = this;
    // A shading that nobody asked for is left open: another run may have a better one to start with.
    looking.note({ run: run.place + 1, step: step.step, prompt: wanted.group, shade: shown.shade && shading.key, beside: beside?.key });
    return this.loaded;
  }

  #placeOf(test) {
    const place = this.step.prompts.findIndex(test);
    return place < 0 ? undefined : place;
  }

  #chooseStep(run, step) {
    const [first, again] = [!this.run, run === this.run];
    Object.assign(this, { run, step });
    fill(this.promptChoice, step.prompts.map((prompt, index) => {
      const reward = prompt.reward === null ? "" : ` · reward ${number(prompt.reward, 3)}`;
      const signal = prompt.signal ? "" : " · no signal";
      return [index, `${index + 1}${reward}${signal} · ${visible(prompt.title).replace(/\s+/g, " ")}`];
    }));
    const view = run.weights.find((entry) => entry.step === step.step);
    this.reading.textContent = view ? view.sentences.slice(0, 2).join(" ") : "";
    this.#chooseShadings(!again);
    // What a link names, whatever it is; later the same number if something is learned from it, else the first prompt of which that is true.
    const named = this.#placeOf(({ group }) => String(group) === this.asked.prompt?.toString());
    const stays = first || step.prompts[named]?.signal;
    this.#choosePrompt((stays ? named : undefined) ?? this.#placeOf(({ signal }) => signal) ?? named ?? 0);
  }

  #chooseShadings(fresh = false) {
    const { shadings, weighted } = this.run;
    const named = (key) => shadings.find((shading) => shading.key === key);
    // Coefficients that are all one show nothing, and saturated ones sides; what the optimizer sees of the tokens differs all the same.
    const plain = weighted && !this.run.weights.at(-1)?.tells_sides;
    const first = (plain ? null : named("share:weight")) ?? shadings[0] ?? { key: "weight", label: "coefficient", centre: 1, span: 0.2 };
    const shading = named(this.asked.shade) ?? first;
    const beside = named(this.asked.beside);
    if (!fresh && shading === this.shading && beside === this.beside) return;
    Object.assign(this, { shading, beside, ranks: null });
    if (fresh) {
      const pairs = shadings.map(({ key, label, group }) => [key, visible(`${group}: ${label}`), group]);
      fill(this.shadeChoice, pairs);
      fill(this.besideChoice, [["", "nothing"], ...pairs]);
    }
    this.shadeChoice.value = shading.key;
    this.besideChoice.value = beside?.key ?? "";
    [shading, beside].forEach((shown, band) => {
      const box = shown ? legend(shown, band === 0 || kindOf(shown) !== kindOf(shading)) : el("div");
      this.legends[band].replaceWith(box);
      this.legends[band] = box;
    });
    this.responses.classList.toggle("bands", beside !== undefined);
    this.jumpOutput.value = "";
    this.shade();
  }

  shade() {
    for (const text of this.texts) text.shadeOpen();
  }

  /** Draw a prompt's responses part by part. */
  #choosePrompt(place) {
    this.promptChoice.value = place;
    const prompt = this.step.prompts[place];
    this.wanted = prompt;
    this.root.dataset.shown = "";
    this.loaded = new Promise((resolve, reject) => this.#load(prompt, resolve).catch(reject));
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
    this.coming.clear();
    this.selected = null;
    this.texts = [];
    this.decisiveLegend.hidden = !block.responses.some(({ decisive }) => decisive);
    this.note.textContent = this.run.left_out ?? "";
    this.promptBox.replaceChildren(el("h3", {}, "Prompt"), el("pre", {}, visible(String(block.prompt ?? "not recorded").trimEnd())));
    if (String(block.answer ?? "").trim()) {
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
      if (this.texts.length <= SHOWN_FIRST && text.blocks.length) text.open(text.blocks[0]);
    }
    this.search.update();
    if (this.texts.length === responses.length) this.#show(this.texts.find(({ response }) => response.tokens.length), 0);
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
      // A custom reward gives no other reason than its reward, which stands there already.
      response.reason && !/^reward [-+.e\d]+$/.test(response.reason) ? el("span", { className: "reason" }, el("bdi", {}, visible(String(response.reason)))) : null);
    return el("article", { className: "response", "aria-label": `Response ${response.index ?? text.number}` }, head, text.element);
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

  /** The readout of one token. */
  #show(text, place) {
    const hint = el("p", { className: "hint" }, "Point at a token, or focus a response and use the arrow keys.");
    if (!text) {
      this.details.replaceChildren(hint);
      return;
    }
    const { response } = text;
    const value = (key) => response[key]?.[place] ?? undefined;
    const read = (key) => valueReader({ key }, response, this.step.totals)(place);
    const share = read("share:weight");
    const whole = text.total(this.step.totals);
    const error = value("measured_error");
    const facts = [
      ["coefficient", number(value("weight"), 5)],
      ["update share", valueText({ key: "share:" }, share, 3)],
      ["probability", number(read("probability"), 4)],
      ["of its response", valueText({ key: "share:" }, share === undefined || !whole ? undefined : share / whole, 3)],
      ["entropy", number(value("entropy"), 4)],
      ...(response.measured ? [["measured credit", value("measured") === undefined ? "not measured" : signed(value("measured"), 3) + (error === undefined ? "" : ` ± ${number(error, 2)}`)]] : []),
      ...(response.alpha ? [["alpha", number(value("alpha"), 4)]] : []),
      ...(response.margin ? [["margin", number(value("margin"), 4)]] : []),
      ...(response.margin_initial ? [["margin before", number(value("margin_initial"), 4)]] : []),
      ...(response.decisive ? [["decisive", value("decisive") ? "yes" : "no"]] : []),
    ];
    const scaled = response.advantage === 0 && ![undefined, 1].includes(value("weight"))
      ? el("p", { className: "hint" }, "The advantage is 0, so this token has no part in the update. Its coefficient is not 1 because all coefficients of the batch are scaled together, to a mean of 1.") : null;
    const others = Object.keys(response.other_weights ?? {});
    const row = (name, key) => el("tr", {}, el("th", { scope: "row" }, ...breakable(name)),
      el("td", {}, number(read(key), 4)), el("td", {}, valueText({ key: "share:" }, read(`share:${key}`), 3)));
    const table = others.length ? el("table", {}, el("thead", {}, el("tr", {}, ...["other weights", "", "share"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...others.map((name) => row(name, `other:${name}`)), row("every weight 1", "plain"))) : null;
    this.details.replaceChildren(
      el("div", { className: "token" }, el("bdi", {}, visibleToken(response.tokens[place])),
        el("small", {}, `token ${number(place + 1)} of ${number(response.tokens.length)}, response #${response.index ?? text.number}`)),
      el("dl", {}, ...facts.map(([name, shown]) => el("div", {}, el("dt", {}, name), el("dd", {}, shown)))), ...[scaled, table].filter(Boolean), hint);
  }

  // Tokens of this prompt by what they are shaded by; pressing again goes to the next in rank.

  #jump(direction) {
    this.ranks ??= { highest: this.#extremes(1), lowest: this.#extremes(-1), at: { highest: -1, lowest: -1 } };
    const name = direction > 0 ? "highest" : "lowest";
    const ranked = this.ranks[name];
    if (!ranked.length) {
      this.jumpOutput.value = `no ${this.shading.label} here`;
      return;
    }
    const rank = (this.ranks.at[name] = (this.ranks.at[name] + 1) % ranked.length);
    const { text, place, value } = ranked[rank];
    this.jumpOutput.value = `${name}, number ${rank + 1}: ${valueText(this.shading, value)}`;
    this.select(text, place);
  }

  /** The RANKED tokens with the highest (sign 1) or lowest (-1) values, in order. */
  #extremes(sign) {
    const columns = this.texts.map(({ response }) => {
      const value = valueReader(this.shading, response, this.step.totals);
      return response.tokens.map((_, place) => value(place));
    });
    const sorted = Float64Array.from(columns.flat().filter((value) => value !== undefined), (value) => -sign * value).sort();
    if (!sorted.length) return [];
    const worst = sorted[Math.min(RANKED, sorted.length) - 1];
    const ranked = [];
    columns.forEach((column, number) => column.forEach((value, place) => {
      if (value !== undefined && -sign * value <= worst) ranked.push({ text: this.texts[number], place, value });
    }));
    return ranked.sort((a, b) => sign * (b.value - a.value)).slice(0, RANKED);
  }
}
