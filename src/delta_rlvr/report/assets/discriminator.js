// The two sides' tokens on the centroid contrast: histograms before and after refinement, and overlap over the run.

class DiscriminatorView {
  constructor(root, runs) {
    this.runs = runs.filter((run) => run.discriminator.length);
    this.root = root;
    if (!this.runs.length) {
      root.append(nothing("No sampled step has margins on both sides (a method without a discriminator, or no signal)."));
    } else {
      const runChoice = choice(this.runs.map((run, place) => [place, run.label]), (place) => this.#chooseRun(Number(place)));
      const runField = field("Run", runChoice);
      runField.hidden = this.runs.length === 1;
      this.verdict = el("p", { className: "verdict" });
      this.slider = el("input", { type: "range", min: 0, step: 1, oninput: () => this.#chooseStep(Number(this.slider.value)) });
      this.output = el("output", { className: "step-output" });
      this.pictures = el("div", { className: "pictures" });
      this.curve = el("div", { className: "panels two" });
      root.append(this.verdict, el("div", { className: "toolbar slim" }, runField, field("Step", this.slider, this.output)),
        this.pictures, el("p", { className: "note" }, "Every token stands at its score on the line between the centroids: right of the dotted 0 it looks like the positive side. Heights are square roots of shares, and the axis is logarithmic away from the median, so that the few telling tokens can be seen beside the many near-certain ones."), this.curve);
      this.charts = new Charts();
      this.#chooseRun(0);
      new ResizeObserver(() => this.charts.resize()).observe(this.curve);
    }
    for (const run of runs) if (run.proxy_agreement) root.append(proxyTable(run));
  }

  #chooseRun(place) {
    this.run = this.runs[place];
    this.verdict.textContent = this.run.discriminator_summary;
    this.slider.max = this.run.discriminator.length - 1;
    this.slider.value = this.slider.max;
    this.slider.parentElement.hidden = this.slider.max === "0";
    this.#chooseStep(Number(this.slider.max));
    this.draw();
  }

  #chooseStep(place) {
    const view = this.run.discriminator[place];
    this.output.value = `${number(view.step)} of ${number(this.run.discriminator.at(-1).step)}`;
    this.slider.setAttribute("aria-valuetext", `step ${view.step}`);
    const top = Math.max(...[view.before, view.after].flatMap((moment) => [...moment.positive, ...moment.negative]));
    this.pictures.replaceChildren(mirror("Before refinement", view.before, top), mirror("After refinement", view.after, top));
  }

  draw() {
    if (!this.charts) return;
    this.charts.destroy();
    this.curve.replaceChildren();
    const views = this.run.discriminator;
    if (views.length < 2) return;
    const curves = [["Overlap", "Shared area of the two sides' distributions: 1 is the same, 0 is apart.", "overlap"],
      ["Separation", "Chance that a token of the positive side scores above one of the negative side.", "auroc"]];
    for (const [title, words, key] of curves) {
      const box = el("figure", { className: "panel" }, el("figcaption", {}, el("b", {}, title), el("span", {}, words)));
      this.curve.append(box);
      this.charts.add(box, { title, steps: views.map((view) => view.step), log: false, height: 170, lines: [
        { label: "after", colour: runColour(0), line: "solid", values: views.map((view) => view.after[key]) },
        { label: "before", colour: runColour(1), line: "dash", values: views.map((view) => view.before[key]) },
      ] });
    }
  }
}

/** Score on the contrast (linear around the median, logarithmic beyond): positive side upwards, negative side downwards, on one axis. */
function mirror(title, moment, top) {
  const width = 480;
  const half = 92;
  const bins = moment.positive.length;
  const step = width / bins;
  const chart = svg("svg", { viewBox: `0 0 ${width} ${2 * half + 22}`, class: "mirror", role: "img", "aria-label": `${title}: overlap ${number(moment.overlap, 3)}` });
  moment.positive.forEach((share, bin) => {
    // Square roots, so that rare tokens can be seen beside the many that are near-certain.
    const up = half * Math.sqrt(share / top);
    const down = half * Math.sqrt(moment.negative[bin] / top);
    chart.append(svg("rect", { x: bin * step + 0.5, y: half - up, width: step - 1, height: up, class: "positive" }),
      svg("rect", { x: bin * step + 0.5, y: half + 1, width: step - 1, height: down, class: "negative" }));
  });
  chart.append(svg("line", { x1: 0, x2: width, y1: half + 0.5, y2: half + 0.5, class: "base" }));
  const zero = width * moment.zero;
  if (zero > 0 && zero < width) chart.append(svg("line", { x1: zero, x2: zero, y1: 0, y2: 2 * half, class: "zero" }));
  const last = moment.ticks.length - 1;
  moment.ticks.forEach((value, tick) => {
    const anchor = tick === 0 ? "start" : tick === last ? "end" : "middle";
    const label = svg("text", { x: (width * tick) / last, y: 2 * half + 16, "text-anchor": anchor });
    label.textContent = number(value, 2);
    chart.append(label);
  });
  return el("figure", { className: "picture" },
    el("figcaption", {}, el("b", {}, title), el("span", {}, `overlap ${number(moment.overlap, 3)} · separation ${number(moment.auroc, 3)}`)),
    chart,
    el("p", { className: "note" }, el("i", { className: "mark positive" }), `positive side, ${plural(moment.count_positive, "token")} `,
      el("i", { className: "mark negative" }), `negative side, ${plural(moment.count_negative, "token")}`));
}

function proxyTable(run) {
  const { proxies = {}, yardstick, tokens, note } = run.proxy_agreement;
  const keys = [...new Set(Object.values(proxies).flatMap((row) => Object.keys(row ?? {})))];
  const head = el("tr", {}, el("th", { scope: "col" }, "Proxy"), ...keys.map((key) => el("th", { scope: "col" }, visible(key.replaceAll("_", " ")))));
  const rows = Object.entries(proxies).map(([name, row]) =>
    el("tr", {}, el("th", { scope: "row" }, visible(name)), ...keys.map((key) => el("td", {}, number(row?.[key], 3)))));
  const words = [`Measured against the ${yardstick ?? "yardstick"}`, tokens ? ` on ${plural(tokens, "token")}` : "", ". ", note ?? ""].join("");
  return el("div", {}, el("h3", {}, `Proxy agreement · ${run.label}`), el("p", { className: "note" }, visible(words)),
    el("div", { className: "table-holder" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows))));
}
