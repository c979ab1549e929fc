// One response as text. Its tokens stand in blocks that are plain text until they come into view; only then does every
// token get an element of its own. So 16 responses of 20,000 tokens cost as much as what is on the screen.

const BLOCK_TOKENS = 160; // a block ends at the first line break after this many tokens,
const BLOCK_LIMIT = 320; // or here, if the model wrote no line break

class ResponseText {
  /** `view` gives the shadings, the search's marks and the selected token. */
  constructor(response, number, view) {
    this.response = response;
    this.number = number;
    this.view = view;
    this.blocks = [];
    this.element = el("div", {
      className: "response-text", tabIndex: 0, role: "group", dir: "ltr",
      "aria-label": `Tokens of response ${response.index ?? number}. Arrow keys move from token to token.`,
    });
    const { tokens } = response;
    for (let start = 0; start < tokens.length; ) {
      let end = Math.min(start + BLOCK_TOKENS, tokens.length);
      const limit = Math.min(start + BLOCK_LIMIT, tokens.length);
      while (end < limit && !tokens[end - 1].includes("\n")) end += 1;
      this.blocks.push(this.#block(start, end));
      start = end;
    }
    this.element.append(...this.blocks.map((block) => block.element));
  }

  #block(start, end) {
    const text = visible(this.response.tokens.slice(start, end).join(""));
    const element = el("div", { className: "block", textContent: text });
    // An estimate of its height for the scroll bar, until the browser has laid it out once.
    const lines = Math.ceil(text.length / 60) + (text.match(/\n/g)?.length ?? 0) / 2;
    element.style.containIntrinsicSize = `auto ${Math.round(lines * 26)}px`;
    const block = { element, start, end, spans: null };
    element.owner = { text: this, block };
    return block;
  }

  /** Give every token of a block its element. */
  open(block) {
    if (block.spans) return;
    block.spans = [];
    for (let place = block.start; place < block.end; place += 1) {
      const span = document.createElement("span");
      span.textContent = visible(this.response.tokens[place]);
      span.place = place;
      block.spans.push(span);
    }
    this.shade(block);
    block.element.replaceChildren(...block.spans);
  }

  /** Back to plain text, once it is out of view. */
  close(block) {
    if (!block.spans || (this.view.selected?.text === this && this.blockOf(this.view.selected.place) === block)) return;
    block.spans = null;
    block.element.textContent = block.element.textContent; // drops the elements, keeps the text
  }

  shade(block) {
    const { shading, beside, search, selected, step } = this.view;
    const { decisive } = this.response;
    const marked = search.places.get(this.number);
    const above = valueReader(shading, this.response, step.totals);
    const below = beside ? valueReader(beside, this.response, step.totals) : null;
    for (const span of block.spans) {
      const { place } = span;
      let name = "t " + shadingClass(shading, above(place));
      if (below) name += " two b" + shadingClass(beside, below(place));
      if (decisive?.[place]) name += " decisive";
      if (marked?.has(place)) name += " match";
      if (selected?.text === this && selected.place === place) name += " selected";
      span.className = name;
    }
  }

  shadeOpen() {
    for (const block of this.blocks) if (block.spans) this.shade(block);
  }

  /** This response's share of the step's update under the run's own weights. */
  total(totals) {
    const share = valueReader({ key: "share:weight" }, this.response, totals);
    this.whole ??= this.response.tokens.reduce((sum, _, place) => sum + (share(place) ?? 0), 0);
    return this.whole;
  }

  blockOf(place) {
    let low = 0;
    let high = this.blocks.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.blocks[middle].end > place) high = middle;
      else low = middle + 1;
    }
    return this.blocks[low];
  }

  /** The element of a token, opened if need be. */
  span(place) {
    const block = this.blockOf(place);
    this.open(block);
    return block.spans[place - block.start];
  }

  /** The token nearest to `place` on the line below (direction 1) or above (-1). */
  vertical(place, direction) {
    const from = this.span(place).getBoundingClientRect();
    let best = null;
    for (let next = place + direction; next >= 0 && next < this.response.tokens.length; next += direction) {
      const box = this.span(next).getBoundingClientRect();
      const line = direction * (box.top - from.top);
      if (line < from.height / 2) continue;
      if (best && direction * (box.top - best.top) > from.height / 2) break;
      const distance = Math.abs(box.left + box.width / 2 - from.left - from.width / 2);
      if (!best || distance < best.distance) best = { place: next, top: box.top, distance };
    }
    return best ? best.place : place;
  }
}
