// Final scores as dots with intervals, tests, and the settings that differ.

function comparisonView(root, model) {
  const { comparison, groups } = model;
  root.append(el("p", { className: "verdict" }, comparison.sentence));
  const scored = comparison.runs.some((run) => run.before || run.after);
  if (scored) root.append(forest(comparison, groups));
  if (comparison.tests.length) root.append(testsTable(comparison));
  evaluations(root, model);
  settings(root, model);
}

/** One row a group (where it has several seeds) and one a run: hollow dot before, full dot and interval after. */
function forest(comparison, groups) {
  const rows = [];
  groups.forEach((group, place) => {
    const summary = comparison.groups[place];
    if (group.members.length > 1 && summary.mean !== null) rows.push({ label: group.label, place, after: { accuracy: summary.mean, low: summary.low, high: summary.high }, note: summary.interval, strong: true });
    for (const member of group.members) rows.push({ ...comparison.runs[member], place });
  });
  const values = rows.flatMap(({ before, after }) => [before, after]).filter(Boolean)
    .flatMap(({ accuracy, low, high }) => [accuracy, low ?? accuracy, high ?? accuracy]);
  const pad = Math.max(0.02, 0.06 * (Math.max(...values) - Math.min(...values)));
  const low = Math.max(0, Math.min(...values) - pad);
  const high = Math.min(1, Math.max(...values) + pad);
  const x = (value) => `${(100 * (Math.max(low, Math.min(high, value)) - low)) / (high - low)}%`;
  const table = el("table", { className: "forest" }, el("thead", {}, el("tr", {},
    ...["Run", "Before", "After", "95 % interval", ""].map((name) => el("th", { scope: "col" }, name)))));
  const body = el("tbody");
  for (const row of rows) {
    const bar = svg("svg", { class: "score", role: "img", "aria-label": `${row.label}: ${percent(row.after?.accuracy)}` });
    const line = (from, to, name) => svg("line", { x1: x(from), x2: x(to), y1: "50%", y2: "50%", class: name });
    bar.append(line(low, high, "track"));
    if (row.before && row.after) bar.append(line(row.before.accuracy, row.after.accuracy, "gain"));
    if (row.after && row.after.low !== null && row.after.low !== undefined) bar.append(line(row.after.low, row.after.high, "interval"));
    if (row.before) bar.append(svg("circle", { cx: x(row.before.accuracy), cy: "50%", r: 4.5, class: "before" }));
    if (row.after) bar.append(svg("circle", { cx: x(row.after.accuracy), cy: "50%", r: row.strong ? 7 : 5, class: "after" }));
    bar.style.setProperty("--own", `var(--run-${row.place % 8})`);
    const interval = row.after && row.after.low !== null ? `${percent(row.after.low)} to ${percent(row.after.high)}` : "–";
    body.append(el("tr", { className: row.strong ? "strong" : "" },
      el("th", { scope: "row" }, visible(row.label), row.note ? el("small", {}, row.note) : sampled(row.after)),
      el("td", {}, row.strong ? "" : percent(row.before?.accuracy)), el("td", {}, percent(row.after?.accuracy)),
      el("td", {}, interval), el("td", { className: "plot" }, bar)));
  }
  table.append(body);
  const ends = el("p", { className: "note" }, `The lines run from ${percent(low, 0)} to ${percent(high, 0)} held-out accuracy; the hollow dot is before training, the full one after it.`);
  return el("div", { className: "table-holder wide", tabIndex: 0, role: "region", "aria-label": "Final scores" }, table, ends);
}

function sampled(after) {
  if (!after?.problems) return null;
  return el("small", {}, `${plural(after.problems, "problem")}${after.samples ? `, ${plural(after.samples, "sample")} each` : ""}`);
}

function testsTable({ tests }) {
  const head = el("tr", {}, ...["Pair", "Points (95 % interval)", "p", "p (Holm)", "Test"].map((name) => el("th", { scope: "col" }, name)));
  const rows = tests.map((test) => el("tr", {},
    el("th", { scope: "row" }, visible(test.pair)), el("td", {}, test.difference), el("td", {}, test.p),
    el("td", {}, test.p_adjusted), el("td", { className: "words" }, test.test)));
  return el("details", { className: "more" }, el("summary", {}, tests.length === 1 ? "The test" : `${tests.length} tests`),
    el("div", { className: "table-holder", tabIndex: 0, role: "region", "aria-label": "Tests" },
      el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows))));
}

/** Results of `delta-rlvr evaluate`: the plain numbers and texts of each. */
function evaluations(root, model) {
  model.comparison.evaluations.forEach((byName, place) => {
    for (const [name, result] of Object.entries(byName)) {
      const rows = result.map(([key, value]) =>
        el("tr", {}, el("th", { scope: "row" }, visible(key)), el("td", { className: "words" }, setting(value))));
      root.append(el("details", { className: "more" }, el("summary", {}, visible(`Evaluation “${name}” of ${model.runs[place].label}`)),
        el("div", { className: "table-holder" }, el("table", {}, el("tbody", {}, ...rows)))));
    }
  });
}

function settings(root, { comparison, runs }) {
  const differing = Object.entries(comparison.differing);
  const agreeing = Object.entries(comparison.agreeing).filter(([, value]) => value !== null);
  if (runs.length > 1) {
    root.append(el("h3", {}, "Settings that differ"));
    if (!differing.length) root.append(nothing("None."));
    else {
      root.append(el("div", { className: "table-holder wide", tabIndex: 0, role: "region", "aria-label": "Settings that differ" },
        el("table", { className: "settings" },
          el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Setting"), ...runs.map((run) => el("th", { scope: "col" }, visible(run.label))))),
          el("tbody", {}, ...differing.map(([key, values]) => el("tr", {}, el("th", { scope: "row" }, visible(key)),
            ...values.map((value) => el("td", { className: "words" }, setting(value)))))))));
    }
  }
  root.append(el("details", { className: "more" },
    el("summary", {}, runs.length > 1 ? `${plural(agreeing.length, "setting")} on which all runs agree` : plural(agreeing.length, "setting")),
    el("dl", { className: "agreeing" }, ...agreeing.map(([key, value]) => el("div", {}, el("dt", {}, visible(key)), el("dd", {}, setting(value)))))));
}

function setting(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return String(value);
  return visible(typeof value === "string" ? value : JSON.stringify(value));
}
