// The two sides' tokens on the centroid contrast: histograms before and after refinement, and overlap over the run.

class DiscriminatorView {
  constructor(root, runs) {
    const shown = runs.filter((run) => run.discriminator.length);
    if (shown.length) {
      this.picker = new RunAndStep(shown, (run) => run.discriminator.map(({ step }) => step), (run, at) => this.#choose(run, run.discriminator[at]));
      this.verdict = el("p", { className: "verdict" });
      this.pictures = el("div", { className: "pictures" });
      this.curve = el("div", { className: "panels two" });
      root.append(this.verdict, el("div", { className: "toolbar slim" }, ...this.picker.fields),
        this.pictures, el("p", { className: "note" }, "Each token is placed at its score on the line between the centroids: right of 0 it is like the positive side. Heights are square roots of shares, and the axis is linear near 0 and logarithmic far from it, so that the few tokens with large scores are visible beside the many near-certain ones. The two pictures have different scales."), this.curve);
      this.charts = new Charts();
      this.follow(looking.shown);
      new ResizeObserver(() => this.charts.resize()).observe(this.curve);
    }
    for (const run of runs) if (run.proxy_agreement) root.append(proxyTable(run));
  }

  follow(shown) {
    this.picker?.follow(shown);
  }

  #choose(run, view) {
    const another = run !== this.run;
    this.run = run;
    const top = Math.max(...[view.before, view.after].flatMap((moment) => [...moment.positive, ...moment.negative]));
    this.pictures.replaceChildren(mirror("Before refinement", view.before, top), mirror("After refinement", view.after, top));
    if (!another) return;
    this.verdict.textContent = run.discriminator_summary;
    this.draw();
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

/** Score on the contrast: positive side upwards, negative side downwards, on one axis with round numbers. */
function mirror(title, moment, top) {
  const width = 480;
  const half = 92;
  const bins = moment.positive.length;
  const step = width / bins;
  const chart = svg("svg", { viewBox: `0 0 ${width} ${2 * half + 40}`, class: "mirror", role: "img", "aria-label": `${title}: overlap ${number(moment.overlap, 3)}` });
  for (const [place, score] of moment.ticks) {
    const x = width * place;
    chart.append(svg("line", { x1: x, x2: x, y1: 0, y2: 2 * half + 5, class: score === 0 ? "zero" : "grid" }),
      svg("text", { x, y: 2 * half + 18, "text-anchor": "middle", class: score === 0 ? "origin" : "" }, number(score, 2)));
  }
  moment.positive.forEach((share, bin) => {
    // Square roots, so that rare tokens can be seen beside the many that are near-certain.
    const up = half * Math.sqrt(share / top);
    const down = half * Math.sqrt(moment.negative[bin] / top);
    chart.append(svg("rect", { x: bin * step + 0.5, y: half - up, width: step - 1, height: up, class: "positive" }),
      svg("rect", { x: bin * step + 0.5, y: half + 1, width: step - 1, height: down, class: "negative" }));
  });
  chart.append(svg("line", { x1: 0, x2: width, y1: half + 0.5, y2: half + 0.5, class: "base" }),
    svg("text", { x: 0, y: 2 * half + 36 }, "← like the negative side"),
    svg("text", { x: width, y: 2 * half + 36, "text-anchor": "end" }, "like the positive side →"));
  const rows = () => [["score from", "score to", "share of the positive side", "share of the negative side"],
    ...moment.positive.map((share, bin) => [moment.edges[bin], moment.edges[bin + 1], share, moment.negative[bin]])];
  return el("figure", { className: "picture" },
    el("figcaption", {}, el("b", {}, title), el("span", {}, `overlap ${number(moment.overlap, 3)} · separation ${number(moment.auroc, 3)}`), csvButton(title, rows)),
    chart,
    el("p", { className: "note" }, ...["positive", "negative"].map((side) => el("span", {}, el("i", { className: `mark ${side}` }), `${side} side, ${plural(moment[`count_${side}`], "token")}`))));
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
