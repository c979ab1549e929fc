// Small helpers shared by all sections. Text of models reaches the page through textContent alone.

/** An element with properties, attributes (names with "-", and `role`) and children (strings become text). */
function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key.includes("-") || key === "role" || key === "for" || key === "list") element.setAttribute(key, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element[key] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** The same for SVG, where everything is an attribute. */
function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const NAMES = new Map([
  [0x200b, "ZWSP"], [0x200c, "ZWNJ"], [0x200d, "ZWJ"], [0x200e, "LRM"], [0x200f, "RLM"], [0x061c, "ALM"],
  [0x202a, "LRE"], [0x202b, "RLE"], [0x202c, "PDF"], [0x202d, "LRO"], [0x202e, "RLO"],
  [0x2066, "LRI"], [0x2067, "RLI"], [0x2068, "FSI"], [0x2069, "PDI"], [0xfeff, "BOM"], [0x00ad, "SHY"],
]);
const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;

function picture(character) {
  const code = character.codePointAt(0);
  if (character === "\n") return "↵\n";
  if (character === "\t") return "⇥\t";
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "␡";
  return `⟨${NAMES.get(code) ?? "U+" + code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** Text with everything that cannot be seen (controls, direction marks, zero widths) as a visible sign. */
function visible(text) {
  const shown = text.replace(UNSEEN, picture);
  // A combining mark at the start would sit on the token before it.
  return /^\p{M}/u.test(shown) ? "◌" + shown : shown;
}

/** A long name such as my_rules.py:MyRule as children that a narrow column breaks between words, not inside one. */
function breakable(name) {
  return visible(name).split(/(?<=[:?&])/).flatMap((part, place) => place ? [el("wbr"), part] : [part]);
}

/** Text as children, with what stands between backticks as code; no line ends within a number such as 1e-3. */
function coded(text) {
  return visible(text).split("`").map((part, place) => (place % 2 ? el("code", {}, part) : part.replace(/(?<=\de)-(?=\d)/g, "\u2011")));
}

/** A token on its own: spaces shown, no line breaks. */
function visibleToken(text) {
  return text === "" ? "⟨empty⟩" : visible(text).replace(/ /g, "␣").replace(/[\n\t]/g, "");
}

/** A number at `digits` significant digits, short for reading; "–" where there is none. */
function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en").replace("-", "−");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return value.toExponential(Math.max(0, digits - 2)).replace("-", "−");
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

const signed = (value, digits = 3) => (value > 0 ? "+" : "") + number(value, digits);

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** So many digits behind the point, rounded as Python does: where two are equally near, the even one. */
function fixed(value, digits) {
  const halves = Math.abs(value) * 2 ** (digits + 1); // exact; an odd number only where two are equally near
  const scale = 10 ** digits;
  const below = Math.floor(Math.abs(value) * scale);
  const nearest = halves % 2 === 1 ? Math.sign(value) * (below + (below % 2)) / scale : value;
  return nearest.toFixed(digits).replace("-", "−");
}

const percent = (share, digits = 1) => (Number.isFinite(share) ? `${fixed(100 * share, digits)} %` : "–");
const plural = (count, one, many = one + "s") => `${number(count)} ${count === 1 ? one : many}`;

let fields = 0;
/** A labelled control. */
function field(label, control, extra) {
  control.id ||= `field-${++fields}`;
  return el("div", { className: "field" }, el("label", { for: control.id }, label), control, extra);
}

/** A select of [value, label] pairs; a third entry names the group that an option stands in. */
function choice(pairs, onchange) {
  const select = el("select", { onchange: (event) => onchange(event.target.value) });
  fill(select, pairs);
  return select;
}

function fill(select, pairs) {
  const groups = new Map();
  select.replaceChildren();
  for (const [value, label, group] of pairs) {
    if (group && !groups.has(group)) {
      groups.set(group, el("optgroup", { label: visible(group) }));
      select.append(groups.get(group));
    }
    (groups.get(group) ?? select).append(el("option", { value }, label));
  }
}

/** Radio buttons in a row: one tab stop, arrow keys move between them. */
function segments(name, label, pairs, current, onchange) {
  const group = el("fieldset", { className: "segments" }, el("legend", {}, label));
  for (const [value, text] of pairs) {
    const input = el("input", { type: "radio", name, value, checked: value === current, onchange: () => onchange(value) });
    group.append(el("label", {}, input, el("span", {}, text)));
  }
  return group;
}

const nothing = (text) => el("p", { className: "nothing" }, text);

/** The page's data: compressed blocks that are unpacked when they are looked at. */
const unpacked = new Map();

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64); // ten times faster, where the browser has it
  const packed = atob(base64);
  const bytes = new Uint8Array(packed.length);
  for (let place = 0; place < packed.length; place += 1) bytes[place] = packed.charCodeAt(place);
  return bytes;
}

async function unpack(name) {
  if (!unpacked.has(name)) {
    const stream = new Blob([bytesOf(document.getElementById(`block-${name}`).textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
    if (unpacked.size > 32) unpacked.delete(unpacked.keys().next().value); // long responses are large once unpacked
    unpacked.set(name, await new Response(stream).json());
  }
  return unpacked.get(name);
}

const page = await unpack("page");
unpacked.clear(); // it stays anyway
page.runs.forEach((run, place) => { run.place = place; });
