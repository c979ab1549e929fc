// Final scores as dots with intervals, tests, and the settings that differ.

function comparisonView(root, model) {
  const { comparison, groups, runs } = model;
  // Scores are held-out shares or mean rewards, TRL's eval_reward where no run has those, or mean rewards over training without either.
  const rewards = comparison.reward_steps !== null;
  const overProblems = rewards ? "" : "95 % interval over problems";
  const scored = comparison.runs.some((run) => run.before || run.after);
  // Several runs: one row for each group, and every run in a fold, so that the page's first screen has room for more.
  const grouped = groups.some(({ members }) => members.length > 1);
  const rows = groups.flatMap((group, place) => {
    const summary = comparison.groups[place];
    const members = group.members.map((member) => ({ ...comparison.runs[member], place }));
    if (members.length === 1) return members;
    const before = members.map((run) => run.before?.accuracy).filter(Number.isFinite);
    const seeds = plural(members.length, "seed");
    const asked = new Set(members.map((run) => run.after?.problems).filter(Boolean));
    const problems = asked.size === 1 ? `, ${plural([...asked][0], "problem")} each` : "";
    return summary.mean === null ? [] : [{ label: group.label, place, unit: members[0].unit, note: (summary.scored < members.length ? `${summary.scored} of ${seeds}` : seeds) + problems, after: { accuracy: summary.mean, low: summary.low, high: summary.high, interval_note: summary.interval_note }, each: summary.each,
      before: before.length ? { accuracy: before.reduce((sum, value) => sum + value, 0) / before.length } : null }];
  });
  // One score, however many runs: its interval is over the problems of that run.
  const spread = ({ scored, each, seeds }) => (scored === 1 ? overProblems : each.length ? (seeds.every(Number.isInteger) ? `Seeds ${seeds.join(", ")}` : "Each seed") : "95 % interval over seeds");
  const over = [...new Set(comparison.groups.filter(({ scored }) => scored).map(spread))].filter(Boolean).join(", or ");
  root.append(el("div", { className: "verdict-and-scores" },
    runs.length > 1 ? el("p", { className: "verdict" }, ...coded(comparison.sentence)) : null, scored ? forests(rows, over, rewards, comparison.beside) : null));
  if (comparison.how_to_score) root.append(el("p", {}, ...coded(comparison.how_to_score.words)), el("pre", { tabIndex: 0 }, el("code", {}, comparison.how_to_score.commands.split("\n").map(visible).join("\n"))));
  const folds = el("div", { className: "folds" });
  if (comparison.tests.length) folds.append(testsTable(comparison));
  if (scored && grouped) folds.append(fold("Every run", forests(groups.flatMap((group, place) => group.members.map((member) => ({ ...comparison.runs[member], place }))), overProblems, rewards)));
  settings(folds, model);
  evaluations(folds, model);
  root.append(folds);
}

const fold = (title, ...content) => el("details", { className: "more" }, el("summary", {}, visible(title)), ...content);

/** A table for each unit among the rows: shares of right answers and mean rewards have neither a heading nor a scale in common. */
function forests(rows, spread, rewards, beside) {
  const units = new Map(rows.map(({ unit }) => [unit.sign, unit]));
  return el("div", { className: "scores" }, ...[...units.values()].map((unit) => forest(rows.filter((row) => row.unit.sign === unit.sign), spread, rewards, unit)),
    beside ? besideTable(beside) : null);
}

/** The scores beside the one that decides, in the terminal's words. */
function besideTable({ title, rows: [headings, ...rows], caption }) {
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...headings.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...rows.map(([method, ...values]) => el("tr", {}, el("th", { scope: "row" }, ...breakable(method)), ...values.map((value) => el("td", {}, value))))));
  return el("div", {}, el("div", { className: "table-holder wide", tabIndex: 0, role: "region", "aria-label": capital(title) }, table),
    el("p", { className: "note" }, `${capital(title)}. ${capital(caption)}.`));
}

/** Rows of scores: hollow dot before, full dot and interval (or a small dot per seed) after. `spread`: what the column of the spread holds;
 * `rewards`: whether the scores are mean rewards over training, which have no before; `unit`: how a score is written, as on the terminal. */
function forest(rows, spread, rewards, unit) {
  const text = (score, digits = unit.digits) => (Number.isFinite(score) ? fixed(Number((unit.scale * score).toFixed(9)), digits) + unit.sign : "–");
  const scores = rows.flatMap(({ before, after }) => [before, after]).filter(Boolean)
    .flatMap(({ accuracy, low, high }) => [accuracy, low ?? accuracy, high ?? accuracy]).concat(rows.flatMap(({ each }) => each ?? []));
  const pad = Math.max(0.02, 0.06 * (Math.max(...scores) - Math.min(...scores)));
  // Shares end at 0 and 1; custom rewards may be anything, but an axis below 0 would promise such rewards.
  const low = Math.max(scores.every((score) => score >= 0) ? 0 : -Infinity, Math.min(...scores) - pad);
  const high = Math.min(unit.sign && scores.every((score) => score <= 1) ? 1 : Infinity, Math.max(...scores) + pad);
  const x = (value) => `${(100 * (Math.max(low, Math.min(high, value)) - low)) / (high - low)}%`;
  const table = el("table", { className: "forest" }, el("thead", {}, el("tr", {},
    ...[rows.some(({ note }) => note) ? "Method" : "Run", ...(rewards ? ["●\u00a0Mean reward"] : unit.sign ? ["○\u00a0Before", "●\u00a0After"] : [`○\u00a0${capital(unit.score)} before`, "●\u00a0After"])].map((name) => el("th", { scope: "col" }, name)),
    el("th", { scope: "col", className: "spread" }, spread), el("th", { scope: "col" }))));
  const body = el("tbody");
  for (const row of rows) {
    const bar = svg("svg", { class: "score", role: "img", "aria-label": `${row.label}: ${text(row.after?.accuracy)}` });
    const line = (from, to, name) => svg("line", { x1: x(from), x2: x(to), y1: "50%", y2: "50%", class: name });
    bar.append(line(low, high, "track"));
    if (row.before && row.after) bar.append(line(row.before.accuracy, row.after.accuracy, "gain"));
    if (row.after && row.after.low !== null && row.after.low !== undefined) bar.append(line(row.after.low, row.after.high, "interval"));
    for (const score of row.each ?? []) bar.append(svg("circle", { cx: x(score), cy: "50%", r: 2.5, class: "seed" }));
    if (row.before) bar.append(svg("circle", { cx: x(row.before.accuracy), cy: "50%", r: 4.5, class: "before" }));
    if (row.after) bar.append(svg("circle", { cx: x(row.after.accuracy), cy: "50%", r: 5.5, class: "after" }));
    bar.style.setProperty("--own", `var(--run-${row.place % 8})`);
    // A line may break between scores, never inside one.
    const interval = row.each?.length ? whole(row.each.map((score) => text(score)), ", ")
      : !row.after || rewards && row.after.low === null ? ["–"] : row.after.low !== null ? whole([text(row.after.low), text(row.after.high)], " to ") : ["no interval"];
    body.append(el("tr", {},
      el("th", { scope: "row" }, ...breakable(row.label), row.note ? el("small", {}, row.note) : sampled(row.after)),
      rewards ? null : el("td", {}, text(row.before?.accuracy)), el("td", {}, text(row.after?.accuracy)),
      el("td", { className: "spread" }, ...interval, row.after?.interval_note ? el("small", {}, visible(row.after.interval_note)) : null), el("td", { className: "plot" }, bar)));
  }
  table.append(body);
  table.querySelector("th:last-child").append(
    el("span", { className: "scale" }, el("span", {}, text(low, unit.digits - 1)), el("span", {}, text(high, unit.digits - 1))));
  const values = () => [["run", "before", "after", "low", "high"],
    ...rows.map(({ label, before, after }) => [label, before?.accuracy, after?.accuracy, after?.low, after?.high])];
  table.querySelector("th").append(csvButton("Scores", values));
  return el("div", { className: "table-holder wide", tabIndex: 0, role: "region", "aria-label": rewards ? "Mean rewards over training" : unit.score === "TRL eval_reward" ? unit.score : "Held-out scores" }, table);
}

const whole = (texts, between) => texts.flatMap((text, place) => [place ? between : "", el("span", { className: "whole" }, text)]);

function sampled(after) {
  if (!after?.problems) return null;
  return el("small", {}, `${plural(after.problems, "problem")}${after.samples ? `, ${plural(after.samples, "sample")} each` : ""}`);
}

function testsTable({ tests, gap, unit }) {
  const head = el("tr", {}, ...["Pair", `${unit.sign ? "Points" : capital(unit.score)} (${gap})`, "p", "p (Holm)"].map((name) => el("th", { scope: "col" }, name)), el("th", { scope: "col", className: "text" }, "Test"));
  const rows = tests.map((test) => el("tr", {},
    el("th", { scope: "row" }, ...breakable(test.pair)), el("td", {}, test.difference), el("td", {}, test.p),
    el("td", {}, test.p_adjusted), el("td", { className: "words" }, test.test)));
  return el("details", { className: "more" }, el("summary", {}, tests.length === 1 ? "The difference and its test" : `${tests.length} differences and their tests`),
    el("div", { className: "table-holder", tabIndex: 0, role: "region", "aria-label": "Tests" },
      el("table", { className: "tests" }, el("thead", {}, head), el("tbody", {}, ...rows))),
    el("p", { className: "note" }, "Differences are computed before scores are rounded."));
}

/** Results of `delta-rlvr evaluate`: the plain numbers and texts of each. */
function evaluations(root, model) {
  const folds = model.comparison.evaluations.flatMap((byName, place) => Object.entries(byName).map(([name, result]) => {
    const rows = result.map(([key, value]) =>
      el("tr", {}, el("th", { scope: "row" }, visible(key)), el("td", { className: "words" }, setting(value))));
    return fold(`“${name}” of ${model.runs[place].label}`, el("div", { className: "table-holder" }, el("table", {}, el("tbody", {}, ...rows))));
  }));
  if (folds.length) root.append(fold(plural(folds.length, "evaluation"), ...folds));
}

function settings(root, { comparison, groups, runs }) {
  const differing = Object.entries(comparison.differing);
  const agreeing = Object.entries(comparison.agreeing).filter(([, value]) => value !== null);
  if (runs.length > 1 && differing.length) {
    root.append(fold(`${plural(differing.length, "setting")} that ${differing.length === 1 ? "differs" : "differ"}: ${differing.slice(0, 3).map(([key]) => key).join(", ")}${differing.length > 3 ? ", ..." : ""}`,
      el("div", { className: "table-holder wide", tabIndex: 0, role: "region", "aria-label": "Settings that differ" },
        el("table", { className: "settings" },
          el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Setting"), ...groups.map(({ label }) => el("th", { scope: "col", className: "text" }, visible(label))))),
          el("tbody", {}, ...differing.map(([key, values]) => el("tr", {}, el("th", { scope: "row" }, visible(key)),
            ...values.map((value) => el("td", { className: "words" }, setting(value))))))))));
  }
  root.append(fold(runs.length > 1 ? `${plural(agreeing.length, "setting")} on which all runs agree` : plural(agreeing.length, "setting"),
    el("dl", { className: "agreeing" }, ...agreeing.map(([key, value]) => el("div", {}, el("dt", {}, visible(key)), el("dd", {}, setting(value)))))));
}

function setting(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return String(value);
  return visible(typeof value === "string" ? value : JSON.stringify(value));
}
