// Token clouds: the types that the run credited most and least, as pictures and as a table.

const CLOUD_TYPES = 40;
const TABLE_ROWS = 60;
const COLUMNS = [
  ["text", "Token"], ["mean", "Mean"], ["count", "Count"], ["mean_positive", "Mean, positive side"],
  ["count_positive", "Count, positive"], ["mean_negative", "Mean, negative side"], ["count_negative", "Count, negative"],
];

class CloudView {
  constructor(root, runs) {
    this.rows = TABLE_ROWS;
    this.picker = new RunAndStep(runs.filter((run) => run.clouds), () => [], (run) => this.#choose(run));
    this.minimum = el("input", { type: "number", min: 1, step: 1, inputMode: "numeric", oninput: () => this.#draw() });
    this.filter = el("input", { type: "search", placeholder: "part of a token", autocomplete: "off", oninput: () => this.#drawTable() });
    this.sides = el("div");
    this.clouds = el("div", { className: "clouds" });
    this.caption = el("p", { className: "note" });
    this.table = el("div", { className: "table-holder", tabIndex: 0, role: "region", "aria-label": "Token types, sortable table" });
    this.more = el("button", { type: "button", onclick: () => { this.rows *= 4; this.#drawTable(); } }, "Show more rows");
    root.append(el("div", { className: "toolbar" }, this.picker.fields[0], this.sides, field("Minimum count", this.minimum)), this.clouds,
      el("div", { className: "toolbar slim" }, field("Find in the table", this.filter),
        csvButton("Token types", () => [COLUMNS.map(([name]) => name), ...this.#tableRows().map((type) => COLUMNS.map(([name]) => type[name]))])),
      this.table, this.more, this.caption);
    this.follow(looking.shown);
  }

  follow(shown) {
    this.picker.follow(shown);
  }

  #choose({ clouds }) {
    this.data = clouds;
    this.types = clouds.id.map((id, row) => ({
      id, text: clouds.text[row], count: clouds.count[row],
      count_positive: clouds.count_positive[row], count_negative: clouds.count_negative[row],
      mean: clouds.mean[row], mean_positive: clouds.mean_positive[row], mean_negative: clouds.mean_negative[row],
    }));
    this.minimum.value = clouds.minimum;
    // A rule may leave one side as it is: the first side that it does not comes first.
    const sides = [["mean_positive", "positive"], ["mean_negative", "negative"], ["mean", "both"]];
    const varies = ([side]) => this.#eligible(side).some((type) => type[side] !== 1);
    const first = this.chosen ?? (sides.find(varies) ?? sides[0])[0];
    this.sides.replaceChildren(segments("cloud-side", "Side", sides, first, (side) => { this.chosen = side; this.#show(side); }));
    this.#show(first);
  }

  #show(side) {
    this.side = side;
    this.sort = { key: side, descending: true };
    this.#draw();
  }

  /** How often a type stands on a side. */
  #count(type, side = this.side) {
    return type[side.replace("mean", "count")];
  }

  #eligible(side = this.side) {
    const least = Math.max(1, Number(this.minimum.value) || 1);
    return this.types.filter((type) => this.#count(type, side) >= least && type[side] !== null);
  }

  #draw() {
    const ranked = this.#eligible().sort((a, b) => b[this.side] - a[this.side]);
    const most = ranked.filter((type) => type[this.side] > 1).slice(0, CLOUD_TYPES);
    const least = ranked.filter((type) => type[this.side] < 1).slice(-CLOUD_TYPES).reverse();
    const widest = Math.max(...[...most, ...least].map((type) => Math.abs(type[this.side] - 1)), 1e-9);
    const none = !ranked.length ? "No type is that frequent on this side." : most.length + least.length
      ? "No frequent type on this side." : "Every frequent type has a mean of 1 on this side.";
    this.clouds.replaceChildren(this.#cloud("Credited most: mean above\u00a01", most, widest, none), this.#cloud("Credited least: mean below\u00a01", least, widest, none));
    const total = ranked.reduce((sum, type) => sum + this.#count(type), 0);
    const mean = ranked.reduce((sum, type) => sum + this.#count(type) * type[this.side], 0) / Math.max(total, 1);
    const shown = this.data.types > this.types.length ? ` ${number(this.types.length)} of the types are on this page.` : "";
    this.caption.textContent = `${plural(this.data.types, "type")} over ${plural(this.data.tokens, "token")} with an advantage; the mean coefficient of those shown here is ${number(mean)}.${shown}`;
    this.rows = TABLE_ROWS;
    this.#drawTable();
  }

  /** Larger letters: a mean further from 1, on the scale of this picture; in order, strongest first. */
  #cloud(title, types, widest, none) {
    if (!types.length) return el("figure", { className: "cloud" }, el("figcaption", {}, title), nothing(none));
    const shading = { centre: 1, span: widest };
    const list = el("ol");
    for (const type of types) {
      const value = type[this.side];
      const word = el("li", { title: `mean ${number(value)} over ${plural(this.#count(type), "token")}` },
        el("bdi", { className: shadingClass(shading, value) }, visibleToken(type.text || `id ${type.id}`)));
      word.style.fontSize = `${(0.85 + 1.15 * (Math.abs(value - 1) / widest) ** 1.3).toFixed(2)}rem`;
      list.append(word);
    }
    return el("figure", { className: "cloud" },
      el("figcaption", {}, title, el("small", {}, `mean ${number(types.at(-1)[this.side])} to ${number(types[0][this.side])}`)), list);
  }

  /** The types that the table is about, in its order. */
  #tableRows() {
    const query = this.filter.value.toLowerCase();
    const { key, descending } = this.sort;
    const sign = descending ? -1 : 1;
    return this.#eligible().filter((type) => type.text.toLowerCase().includes(query)).sort((a, b) => {
      if (key === "text") return sign * (a.text < b.text ? -1 : Number(a.text > b.text));
      if (a[key] === null || b[key] === null) return (a[key] === null) - (b[key] === null); // unknown last
      return sign * (a[key] - b[key]);
    });
  }

  #drawTable() {
    const { key, descending } = this.sort;
    const rows = this.#tableRows();
    const head = el("tr", {}, ...COLUMNS.map(([name, label]) => {
      const current = name === key;
      const order = current ? (descending ? "descending" : "ascending") : "none";
      const button = el("button", { type: "button", onclick: () => this.#sortBy(name) }, label,
        el("span", { "aria-hidden": "true" }, current ? (descending ? " ↓" : " ↑") : ""));
      return el("th", { scope: "col", "aria-sort": order, className: name === "text" ? "text" : "" }, button);
    }));
    const body = rows.slice(0, this.rows).map((type) => el("tr", {}, ...COLUMNS.map(([name]) =>
      name === "text"
        ? el("td", { className: "text" }, el("bdi", { className: "mono" }, visibleToken(type.text || `id ${type.id}`)))
        : el("td", {}, number(type[name])))));
    const focused = this.table.contains(document.activeElement) && document.activeElement.tagName === "BUTTON";
    this.table.replaceChildren(el("table", {}, el("thead", {}, head), el("tbody", {}, ...body)));
    if (focused) this.table.querySelector(`th:nth-child(${COLUMNS.findIndex(([name]) => name === key) + 1}) button`).focus();
    this.more.hidden = rows.length <= this.rows;
  }

  #sortBy(key) {
    this.sort = { key, descending: this.sort.key === key ? !this.sort.descending : key !== "text" };
    this.#drawTable();
  }
}
