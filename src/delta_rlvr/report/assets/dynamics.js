// Training curves of all runs, overlaid; runs that differ in the seed alone become a mean with a band.

class DynamicsView {
  constructor(root, model) {
    this.model = model;
    this.charts = new Charts();
    this.log = false;
    const several = model.groups.some((group) => group.members.length > 1);
    this.bands = several;
    const toolbar = el("div", { className: "toolbar slim" });
    if (several) {
      toolbar.append(segments("bands", "Seeds", [["bands", "mean and range"], ["runs", "every run"]], "bands",
        (value) => { this.bands = value === "bands"; this.draw(); }));
    }
    toolbar.append(segments("log", "Scale", [["linear", "linear"], ["log", "logarithmic"]], "linear",
      (value) => { this.log = value === "log"; this.draw(); }));
    this.key = el("ul", { className: "run-key" });
    this.primary = el("div", { className: "panels" });
    this.secondary = el("div", { className: "panels" });
    this.more = el("details", { className: "more", ontoggle: () => this.charts.resize() }, el("summary", {}, "More curves"), this.secondary);
    this.notes = el("div");
    root.append(toolbar, this.key, this.primary, this.more, this.notes);
    for (const run of model.runs) {
      if (run.notes.length) this.notes.append(el("details", { className: "more" },
        el("summary", {}, `Notes of ${run.label}`), el("ul", {}, ...run.notes.map((note) => el("li", {}, visible(note))))));
    }
    this.draw();
    new ResizeObserver(() => this.charts.resize()).observe(this.primary);
  }

  /** What is drawn as one line: a group of seeds, or a single run. */
  #units() {
    const { groups, runs } = this.model;
    return this.bands
      ? groups.map((group, place) => ({ label: group.label, place, members: group.members }))
      : runs.map((run, place) => ({ label: run.label, place, members: [place] }));
  }

  draw() {
    this.charts.destroy();
    const units = this.#units();
    this.key.hidden = units.length === 1;
    this.key.replaceChildren(...units.map((unit) => {
      const mark = el("i");
      mark.style.background = runColour(unit.place);
      const seeds = unit.members.length > 1 ? ` (${unit.members.length} seeds: mean)` : "";
      return el("li", {}, mark, unit.label + seeds);
    }), ...(this.bands ? [el("li", { className: "note" }, "Pointing at a line shows the lowest and the highest of its seeds.")] : []));
    // A chart with many lines for each of several runs cannot be read at a glance.
    const first = ({ primary, lines }) => primary && (units.length === 1 || lines.length < 5);
    for (const holder of [this.primary, this.secondary]) holder.replaceChildren();
    for (const panel of this.model.panels) this.#panel(first(panel) ? this.primary : this.secondary, panel, units);
    this.more.hidden = !this.secondary.children.length;
  }

  #panel(holder, panel, units) {
    const box = el("figure", { className: "panel" },
      el("figcaption", {}, el("b", {}, panel.title), el("span", {}, panel.words)));
    holder.append(box);
    const wanted = [];
    units.forEach((unit) => panel.lines.forEach((line, number) => {
      const columns = unit.members.map((member) => this.model.runs[member].metrics)
        .filter((metrics) => metrics[line.key]).map((metrics) => ({ steps: metrics.step, values: metrics[line.key] }));
      if (columns.length) wanted.push({ unit, line, columns, number });
    }));
    if (!wanted.length) return;
    const { steps, tables } = aligned(wanted.flatMap(({ columns }) => columns));
    const alone = units.length === 1;
    let at = 0;
    const lines = wanted.map(({ unit, line, columns, number }) => {
      const own = tables.slice(at, (at += columns.length));
      const label = alone ? line.label : panel.lines.length > 1 ? `${unit.label}, ${line.label}` : unit.label;
      // One run: a colour for each line. Several: the colour says the run, the dash says the line.
      const shade = alone ? runColour(number) : runColour(unit.place);
      const base = { label, colour: shade, line: line.line };
      return own.length > 1 ? { ...base, ...band(own) } : { ...base, values: own[0] };
    });
    this.charts.add(box, { title: panel.title, steps, lines, log: this.log, known: panel.lines.length === 1 });
  }
}

/** Mean, lowest and highest over runs at each step that any of them has. */
function band(tables) {
  const result = { values: [], low: [], high: [] };
  for (let step = 0; step < tables[0].length; step += 1) {
    const known = tables.map((table) => table[step]).filter((value) => value !== null && value !== undefined);
    result.values.push(known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null);
    result.low.push(known.length ? Math.min(...known) : null);
    result.high.push(known.length ? Math.max(...known) : null);
  }
  return result;
}
