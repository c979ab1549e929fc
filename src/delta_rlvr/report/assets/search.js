// Search over the shown responses: matches are marked and listed where one types, and the page stays where it is.

const LISTED = 40;

class Search {
  /** `view` has the texts, and selects a token. */
  constructor(view) {
    this.view = view;
    this.places = new Map(); // response number -> set of places, for the marks
    this.matches = []; // in order: {text, place, end}
    this.input = el("input", {
      type: "search", placeholder: "token or words", autocomplete: "off", spellcheck: false, oninput: () => this.update(),
      onkeydown: (event) => {
        if (event.key === "Enter") { event.preventDefault(); this.#go(this.at + (event.shiftKey ? -1 : 1)); }
      },
    });
    this.output = el("output", { className: "search-output", "aria-live": "polite" });
    this.list = el("ol", { className: "matches" });
    this.element = el("div", { className: "search" }, field("Search these responses", this.input, this.output), this.list);
  }

  /** Look through the responses that are shown now. */
  update() {
    const query = this.input.value.toLowerCase();
    this.places = new Map();
    this.matches = [];
    this.at = -1;
    if (query) for (const text of this.view.texts) this.#searchIn(text, query);
    this.output.value = query ? plural(this.matches.length, "match", "matches") : "";
    this.list.replaceChildren(...this.matches.slice(0, LISTED).map((match, number) => this.#row(match, number)));
    if (this.matches.length > LISTED) this.list.append(el("li", { className: "note" }, `and ${number(this.matches.length - LISTED)} more: Enter goes through all of them`));
    this.view.shade();
  }

  /** In the joined text, so that words of several tokens are matched too. */
  #searchIn(text, query) {
    const lower = text.response.tokens.map((token) => token.toLowerCase());
    const whole = lower.join("");
    const places = new Set();
    let place = 0;
    let start = 0; // where token `place` begins in `whole`
    for (let hit = whole.indexOf(query); hit >= 0; hit = whole.indexOf(query, hit + query.length)) {
      while (start + lower[place].length <= hit) start += lower[place++].length;
      let end = place;
      for (let from = start; from < hit + query.length; from += lower[end++].length) places.add(end);
      this.matches.push({ text, place, end });
    }
    if (places.size) this.places.set(text.number, places);
  }

  #row({ text, place, end }, number) {
    const { tokens, index } = text.response;
    const words = (from, to) => visible(tokens.slice(Math.max(0, from), to).join("").replace(/\s+/g, " "));
    return el("li", {}, el("button", { type: "button", onclick: () => this.#go(number) }, el("small", {}, `#${index ?? text.number}`),
      el("bdi", {}, words(place - 4, place), el("mark", {}, words(place, end)), words(end, end + 5))));
  }

  #go(wanted) {
    const count = this.matches.length;
    if (!count) return;
    this.at = this.at < 0 && wanted < 0 ? count - 1 : (wanted + count) % count;
    this.output.value = `${number(this.at + 1)} of ${plural(count, "match", "matches")}`;
    this.view.select(this.matches[this.at].text, this.matches[this.at].place);
  }
}
