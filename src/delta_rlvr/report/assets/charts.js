// uPlot with this page's look: colours from the style sheet, shared cursor and zoom, keyboard, log scale.

const DASHES = { solid: [], dash: [7, 4], dot: [2, 4], dashdot: [8, 4, 2, 4], long: [14, 5] };
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const runColour = (place) => colour(`--run-${place % 8}`);

/** Width of a box without its padding. */
function inside(box) {
  const style = getComputedStyle(box);
  return box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
}

class Charts {
  constructor() {
    this.plots = [];
    this.key = uPlot.sync(`charts-${++fields}`).key;
  }

  destroy() {
    for (const plot of this.plots) plot.destroy();
    this.plots = [];
  }

  /** One panel. `lines`: {label, colour, line, values, low, high}; a line with low and high gets a band: while one points at the line,
   * where several would lie over each other. `known`: the lines are told elsewhere, so the legend shows while one reads values. Some
   * steps have no value (a rollout batch may last several steps, and some numbers are taken at few of them): lines and bands go on. */
  add(holder, { title, steps, lines, log, known = false, height = 190 }) {
    const ink = colour("--soft");
    const rule = colour("--rule");
    const series = [{ label: "step", value: (_, value) => (value === null ? "–" : number(value)) }];
    const data = [steps];
    const bands = [];
    const owners = [null]; // the line of each series
    const several = lines.filter(({ low }) => low).length > 1;
    let pointed = null;
    // A log scale has no place for zero and below.
    const fit = (values) => (log ? values.map((value) => (value > 0 ? value : null)) : values);
    for (const line of lines) {
      series.push({
        label: line.label, stroke: line.colour, width: 1.75, dash: DASHES[line.line], spanGaps: true,
        points: { show: line.values.filter((value) => value !== null).length < 12, size: 5, fill: line.colour }, value: (_, value) => number(value, 4),
      });
      data.push(fit(line.values));
      owners.push(line, ...(line.low ? [line, line] : []));
      if (!line.low) continue;
      const at = data.length;
      data.push(fit(line.high), fit(line.low));
      for (const edge of ["highest", "lowest"]) {
        series.push({ label: `${line.label} ${edge}`, stroke: "transparent", width: 0, spanGaps: true, points: { show: false }, class: "edge", value: (_, value) => number(value, 4) });
      }
      const fill = line.colour.startsWith("#") ? line.colour + "2e" : line.colour;
      bands.push({ series: [at, at + 1], fill: () => (!several || pointed === line ? fill : "transparent") });
    }
    const axis = { stroke: ink, grid: { stroke: rule, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const plot = new uPlot({
      width: Math.max(240, inside(holder)), height, padding: [10, 14, 0, 0],
      scales: { x: { time: false }, y: log ? { distr: 3 } : {} },
      axes: [{ ...axis, grid: { show: false }, size: 26, incrs: [1, 2, 5].flatMap((first) => [1, 10, 100, 1e3, 1e4, 1e5].map((ten) => first * ten)).sort((a, b) => a - b) },
        { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick, 4))) }],
      cursor: { sync: { key: this.key }, drag: { x: true, y: false }, points: { size: 6 }, focus: { prox: 24 } },
      focus: { alpha: 1 }, // nothing fades: the band alone says which line it is
      series, bands,
      hooks: {
        setScale: [(self, scale) => { if (scale === "x") this.#followZoom(self); }],
        setCursor: [(self) => self.root.classList.toggle("read", self.cursor.idx !== null && self.cursor.idx !== undefined)],
        setSeries: [(self, place) => {
          if (pointed === (owners[place] ?? null)) return;
          pointed = owners[place] ?? null;
          if (several) self.redraw(false);
        }],
      },
    }, data, holder);
    // uPlot marks every line of its legend alike; here the mark has the line's own dashes.
    plot.root.querySelectorAll(".u-legend .u-series").forEach((row, place) => {
      const { stroke, dash } = lines.find(({ label }) => label === series[place].label) ? series[place] : {};
      row.querySelector(".u-marker")?.replaceWith(stroke ? svg("svg", { class: "u-marker", "aria-hidden": "true" },
        svg("line", { x1: 0, x2: "100%", y1: "50%", y2: "50%", stroke, "stroke-width": 2.5, "stroke-dasharray": dash.join(" ") })) : "");
    });
    plot.root.classList.toggle("known", known);
    plot.root.setAttribute("role", "application");
    plot.root.setAttribute("aria-label", `Chart of ${title}. Arrow keys read values, plus and minus zoom, zero resets.`);
    plot.root.tabIndex = 0;
    plot.root.addEventListener("keydown", (event) => this.#key(event, plot));
    this.plots.push(plot);
    holder.querySelector("figcaption").append(csvButton(title, () => this.#rows(plot)));
    return plot;
  }

  /** The shown steps, with a column for every line and the edges of its band. */
  #rows(plot) {
    const { min, max } = plot.scales.x;
    const rows = plot.data[0].map((_, place) => plot.data.map((column) => column[place])).filter(([step]) => step >= min && step <= max);
    return [plot.series.map(({ label }) => label), ...rows];
  }

  /** All panels show the same steps. */
  #followZoom(source) {
    if (this.following) return;
    this.following = true;
    const { min, max } = source.scales.x;
    for (const plot of this.plots) {
      if (plot !== source && min !== null && (plot.scales.x.min !== min || plot.scales.x.max !== max)) plot.setScale("x", { min, max });
    }
    this.following = false;
  }

  #key(event, plot) {
    const steps = plot.data[0];
    if (!steps.length) return;
    const { min, max } = plot.scales.x;
    const at = plot.cursor.idx ?? plot.valToIdx(min);
    const zoom = (factor) => {
      const centre = Math.min(max, Math.max(min, steps[at]));
      const low = Math.max(steps[0], centre - (centre - min) * factor);
      const high = Math.min(steps.at(-1), centre + (max - centre) * factor);
      if (high > low) plot.setScale("x", { min: low, max: high });
    };
    const actions = {
      ArrowRight: () => this.#cursor(plot, at + (plot.cursor.idx === null || plot.cursor.idx === undefined ? 0 : 1)),
      ArrowLeft: () => this.#cursor(plot, at - 1),
      Home: () => this.#cursor(plot, plot.valToIdx(min)),
      End: () => this.#cursor(plot, plot.valToIdx(max)),
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
      0: () => plot.setScale("x", { min: steps[0], max: steps.at(-1) }),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  #cursor(plot, place) {
    const index = Math.max(0, Math.min(plot.data[0].length - 1, place));
    plot.setCursor({ left: plot.valToPos(plot.data[0][index], "x"), top: plot.over.clientHeight / 2 }, true, true);
  }

  resize() {
    for (const plot of this.plots) {
      const width = Math.max(240, inside(plot.root.parentElement));
      if (width !== plot.width) plot.setSize({ width, height: plot.height });
    }
  }
}

/** Join runs' columns on one axis of steps; null where a run has no value there. */
function aligned(columns) {
  const steps = [...new Set(columns.flatMap(({ steps: own }) => own))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, index) => [step, index]));
  const tables = columns.map(({ steps: own, values }) => {
    const row = new Array(steps.length).fill(null);
    own.forEach((step, index) => { row[place.get(step)] = values[index]; });
    return row;
  });
  return { steps, tables };
}
