// What the weights of a step follow: sentences, each method's numbers, and weight against 1 - p on both sides.

class WeightsView {
  constructor(root, runs) {
    this.picker = new RunAndStep(runs.filter((run) => run.weights.length), (run) => run.weights.map(({ step }) => step), (run, at) => this.#draw(run, run.weights[at]));
    this.sentences = el("div", { className: "sentences" });
    this.figures = el("div", { className: "pictures" });
    this.figureNote = el("p", { className: "note" });
    this.table = el("div", { className: "table-holder wide", tabIndex: 0, role: "region", "aria-label": "What each method's weights follow" });
    const tableNote = el("p", { className: "note" }, "The mean weight is over the tokens with an advantage. Many methods scale the mean over all tokens of a batch to 1; tokens without an advantage often have the lowest weight, so the others are above 1.");
    root.append(el("div", { className: "toolbar slim" }, ...this.picker.fields), this.sentences, this.figures, this.figureNote, this.table, tableNote);
    this.follow(looking.shown);
  }

  follow(shown) {
    this.picker.follow(shown);
  }

  #draw(run, view) {
    this.sentences.replaceChildren(...view.sentences.map((sentence) => el("p", { className: "verdict" }, sentence)),
      el("p", { className: "note" }, `Over ${plural(view.tokens, "token")} with an advantage, of the ${plural(view.responses, "response")} kept of this step${document.getElementById("dynamics") ? "; the curves under Training are over whole batches" : ""}. ${capital(view.sides[0])} responses are those with a positive advantage${view.sides[0] === "right" ? "" : ": a reward above the mean of their prompt's"}.`));
    // One axis for the whole run: the range of the colours.
    const { span } = run.shadings.find(({ key }) => key === view.drawn.key);
    const sides = [["positive", `${capital(view.sides[0])} responses`], ["negative", `${capital(view.sides[1])} responses`]];
    const row = view.rows.find(({ key }) => key === view.drawn.key);
    this.figures.replaceChildren(...sides.map(([side, title]) =>
      scatter(`${title}: weight against 1\u00a0−\u00a0p`, visible(view.drawn.name), side, view.points[side], Math.max(0, 1 - span), 1 + span, row[`rank_${side}`])));
    this.figureNote.textContent = `Weights of ${visible(view.drawn.name)}; a dot is a token: ${sampleText(view.points.positive, `${view.sides[0]} one`)} and ${sampleText(view.points.negative, `${view.sides[1]} one`)}. The dotted line is a weight of 1. Dots beyond an axis stand at its end. Where most weights hardly differ, a rank correlation is of those differences, and may look different from the plot.`;
    this.#numbers(view);
  }

  #numbers({ rows, step, sides: [positive, negative] }) {
    const share = (value) => percent(value ?? NaN);
    const rank = (value) => (value === undefined ? "–" : correlationText(value));
    const columns = [["Mean weight", "weight_signal_mean", (value) => number(value, 3)], [`${capital(positive)} responses' share of the update`, "update_share_positive", share], [`Rank correlation with 1\u00a0−\u00a0p, ${positive}`, "rank_positive", rank],
      [`the same, ${negative}`, "rank_negative", rank], ["Variance between sides", "between_sides", share], ["Saturated", "saturated", share],
      [`Rank correlation with measured credit, ${positive}`, "measured_positive", rank], [`the same, ${negative}`, "measured_negative", rank]]
      .filter(([, key]) => rows.some((row) => row[key] !== undefined));
    const values = () => [["method", ...columns.map(([name]) => name)], ...rows.map((row) => [row.name, ...columns.map(([, key]) => row[key])])];
    this.table.replaceChildren(
      el("table", { className: "weights" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Weights of", csvButton(`Weights at step ${step}`, values)), ...columns.map(([name]) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, ...rows.map((row) => el("tr", { className: row.key === "weight" ? "strong" : "" }, el("th", { scope: "row" }, ...breakable(row.name)),
          ...columns.map(([, key, shown]) => el("td", {}, shown(row[key]))))))));
  }
}

const correlationText = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
const DECADES = 5; // 1 - p from 0.00001 to 1

/** A dot for each token; 1 - p on a logarithmic axis, since most tokens are near-certain. Both axes are the same at every step. */
function scatter(title, method, side, { uncertain, weight }, low, high, correlation) {
  const [width, height, left, bottom] = [480, 250, 44, 40];
  const x = (value) => left + (width - left - 8) * (1 + Math.max(-DECADES, Math.log10(Math.max(value, 1e-9))) / DECADES);
  const y = (value) => 8 + (height - bottom - 8) * (1 - (Math.max(low, Math.min(high, value)) - low) / (high - low));
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: `mirror scatter ${side}`, role: "img", "aria-label": `${title}: rank correlation ${number(correlation, 2)}` });
  for (let decade = -DECADES; decade <= 0; decade += 1) {
    const at = x(10 ** decade);
    chart.append(svg("line", { x1: at, x2: at, y1: 8, y2: height - bottom + 4, class: "grid" }),
      svg("text", { x: at, y: height - bottom + 18, "text-anchor": decade === 0 ? "end" : "middle" }, `${decade === -DECADES ? "≤ " : ""}${10 ** decade === 1e-5 ? "0.00001" : 10 ** decade}`));
  }
  for (const value of [low, (low + 1) / 2, 1, (1 + high) / 2, high]) {
    chart.append(svg("line", { x1: left, x2: width - 8, y1: y(value), y2: y(value), class: value === 1 ? "zero" : "grid" }),
      svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, number(value, 3)));
  }
  weight.forEach((value, place) => chart.append(svg("circle", { cx: x(uncertain[place]).toFixed(1), cy: y(value).toFixed(1), r: 2.6 })));
  chart.append(svg("text", { x: width - 8, y: height - 4, "text-anchor": "end" }, "1 − p: how unsure the policy was →"));
  const rows = () => [["one minus p", "weight"], ...weight.map((value, place) => [uncertain[place], value])];
  return el("figure", { className: "picture" }, el("figcaption", {}, el("b", {}, title),
    el("span", {}, `${method}: `, correlation === undefined ? "no rank correlation: one of the two does not vary" : `rank correlation ${correlationText(correlation)}`), csvButton(title, rows)), chart);
}

/** How many tokens a figure shows, and of how many where that is a sample. */
function sampleText({ weight, of }, what) {
  return weight.length < of ? `${plural(weight.length, what)} of ${number(of)}, drawn at random` : plural(of, what);
}
