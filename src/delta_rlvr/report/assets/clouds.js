// Token clouds: the types that the run credited most and least, as pictures and as a table.

const CLOUD_TYPES = 40;
const TABLE_ROWS = 60;

class CloudView {
  constructor(root, runs) {
    this.root = root;
    this.runs = runs.filter((run) => run.clouds);
    this.sort = { key: "mean", descending: true };
    this.rows = TABLE_ROWS;
    if (!this.runs.length) {
      root.append(nothing("No run has token sums yet; they are written with each checkpoint and at the end."));
      return;
    }
    const runChoice = choice(this.runs.map((run, place) => [place, run.label]), (place) => this.#chooseRun(Number(place)));
    const runField = field("Run", runChoice);
    runField.hidden = this.runs.length === 1;
    this.minimum = el("input", { type: "number", min: 1, step: 1, inputMode: "numeric", oninput: () => this.#draw() });
    this.filter = el("input", { type: "search", placeholder: "part of a token", autocomplete: "off", oninput: () => this.#drawTable() });
    this.side = "mean";
    const sides = segments("cloud-side", "Side", [["mean", "both"], ["mean_positive", "positive"], ["mean_negative", "negative"]],
      this.side, (side) => { this.side = side; this.#draw(); });
    this.clouds = el("div", { className: "clouds" });
    this.caption = el("p", { className: "note" });
    this.table = el("div", { className: "table-holder", tabIndex: 0, role: "region", "aria-label": "Token types, sortable table" });
    this.more = el("button", { type: "button", onclick: () => { this.rows *= 4; this.#drawTable(); } }, "Show more rows");
    root.append(el("div", { className: "toolbar" }, runField, sides, field("Minimum count", this.minimum)), this.clouds,
      el("div", { className: "toolbar slim" }, field("Find in the table", this.filter)), this.table, this.more, this.caption);
    this.#chooseRun(0);
  }

  #chooseRun(place) {
    const { clouds } = this.runs[place];
    this.data = clouds;
    this.types = clouds.id.map((id, row) => ({
      id, text: clouds.text[row], count: clouds.count[row],
      count_positive: clouds.count_positive[row], count_negative: clouds.count_negative[row],
      mean: clouds.mean[row], mean_positive: clouds.mean_positive[row], mean_negative: clouds.mean_negative[row],
    }));
    this.minimum.value = clouds.minimum;
    this.#draw();
  }

  /** How often a type stands on the chosen side. */
  #count(type) {
    return type[this.side.replace("mean", "count")];
  }

  #eligible() {
    const least = Math.max(1, Number(this.minimum.value) || 1);
    return this.types.filter((type) => this.#count(type) >= least && type[this.side] !== null);
  }

  #draw() {
    const ranked = this.#eligible().sort((a, b) => b[this.side] - a[this.side]);
    // Tokens without an advantage are in no sum, so that the mean of the others need not be 1: types are told apart around it.
    const total = ranked.reduce((sum, type) => sum + this.#count(type), 0);
    this.middle = ranked.reduce((sum, type) => sum + this.#count(type) * type[this.side], 0) / Math.max(total, 1);
    const most = ranked.filter((type) => type[this.side] > this.middle).slice(0, CLOUD_TYPES);
    const least = ranked.filter((type) => type[this.side] < this.middle).slice(-CLOUD_TYPES).reverse();
    const widest = Math.max(...[...most, ...least].map((type) => Math.abs(type[this.side] - this.middle)), 1e-9);
    this.clouds.replaceChildren(
      this.#cloud("Credited most", most, widest),
      this.#cloud("Credited least", least, widest));
    const shown = this.data.types > this.types.length ? ` ${number(this.types.length)} of them are on this page.` : "";
    this.caption.textContent = `${plural(this.data.types, "type")} over ${plural(this.data.tokens, "token")} with a non-zero advantage, whose mean coefficient is ${number(this.middle)}.${shown}`;
    this.rows = TABLE_ROWS;
    this.#drawTable();
  }

  /** Larger letters: a mean further from that of all tokens, on the scale of this picture; in order, strongest first. */
  #cloud(title, types, widest) {
    if (!types.length) return el("figure", { className: "cloud" }, el("figcaption", {}, title), nothing("No type that is frequent enough has a mean on this side of all tokens' mean."));
    const far = types[0][this.side];
    const near = types.at(-1)[this.side];
    const shading = { kind: "diverging", span: widest };
    const list = el("ol");
    for (const type of types) {
      const value = type[this.side];
      const place = (value - this.middle) / (far - this.middle);
      const word = el("li", { title: `mean ${number(value)} over ${plural(this.#count(type), "token")}` },
        el("bdi", { className: shadingClass(shading, 1 + value - this.middle) }, visibleToken(type.text || `id ${type.id}`)));
      word.style.fontSize = `${(0.85 + 1.15 * place ** 1.3).toFixed(2)}rem`;
      list.append(word);
    }
    return el("figure", { className: "cloud" },
      el("figcaption", {}, title, el("small", {}, `mean ${number(near)} to ${number(far)}`)), list);
  }

  #drawTable() {
    const columns = [
      ["text", "Token"], ["mean", "Mean"], ["count", "Count"], ["mean_positive", "Mean, positive side"],
      ["count_positive", "Count, positive"], ["mean_negative", "Mean, negative side"], ["count_negative", "Count, negative"],
    ];
    const query = this.filter.value.toLowerCase();
    const { key, descending } = this.sort;
    const rows = this.#eligible().filter((type) => type.text.toLowerCase().includes(query));
    const sign = descending ? -1 : 1;
    rows.sort((a, b) => {
      if (key === "text") return sign * (a.text < b.text ? -1 : Number(a.text > b.text));
      if (a[key] === null || b[key] === null) return (a[key] === null) - (b[key] === null); // unknown last
      return sign * (a[key] - b[key]);
    });
    const head = el("tr", {}, ...columns.map(([name, label]) => {
      const current = name === key;
      const order = current ? (descending ? "descending" : "ascending") : "none";
      const button = el("button", { type: "button", onclick: () => this.#sortBy(name) }, label,
        el("span", { "aria-hidden": "true" }, current ? (descending ? " ↓" : " ↑") : ""));
      return el("th", { scope: "col", "aria-sort": order, className: name === "text" ? "text" : "" }, button);
    }));
    const body = rows.slice(0, this.rows).map((type) => el("tr", {}, ...columns.map(([name]) =>
      name === "text"
        ? el("td", { className: "text" }, el("bdi", { className: "mono" }, visibleToken(type.text || `id ${type.id}`)))
        : el("td", {}, number(type[name])))));
    const focused = this.table.contains(document.activeElement) && document.activeElement.tagName === "BUTTON";
    this.table.replaceChildren(el("table", {}, el("thead", {}, head), el("tbody", {}, ...body)));
    if (focused) this.table.querySelector(`th:nth-child(${columns.findIndex(([name]) => name === key) + 1}) button`).focus();
    this.more.hidden = rows.length <= this.rows;
  }

  #sortBy(key) {
    this.sort = { key, descending: this.sort.key === key ? !this.sort.descending : key !== "text" };
    this.#drawTable();
  }
}
