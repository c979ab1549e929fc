// From a token's value to one of 15 colour classes, and the legend that explains them.

const BUCKETS = 15; // odd: the middle one is the scale's centre

/** A function from a token's place to its value under a shading; undefined where there is none. `totals`: the step's updates, by weights. */
function valueReader(shading, response, totals) {
  const { key } = shading;
  const { logps } = response;
  const known = (value) => (value === null ? undefined : value);
  if (key === "probability") return (place) => (Number.isFinite(logps?.[place]) ? Math.exp(logps[place]) : undefined);
  if (key === "plain") return () => 1;
  if (key.startsWith("other:")) return (place) => known(response.other_weights?.[key.slice(6)]?.[place]);
  if (!isShare(shading)) return (place) => known(response[key]?.[place]);
  const weight = valueReader({ key: key.slice(6) }, response, totals);
  const part = Math.abs(response.advantage ?? 0) / totals[key.slice(6)];
  return (place) => {
    const share = Number.isFinite(logps?.[place]) ? weight(place) * part * -Math.expm1(logps[place]) : NaN;
    return Number.isFinite(share) ? share : undefined;
  };
}

/** Few tokens have most of the update, so that shares are shaded by their square root: the others can be seen, too. */
const isShare = ({ key }) => key?.startsWith("share:");

/** A value in words, as it is shown under this shading. */
function valueText(shading, value, digits = 4) {
  if (value === undefined) return "–";
  if (isShare(shading)) return value > 0 && value < 1e-5 ? "< 0.001 %" : `${number(100 * value, digits)} %`;
  return shading.key === "measured" ? signed(value, digits) : number(value, digits);
}

/** Class of a value: "d0".."d14" around the centre, "q0".."q14" from 0 up, "none" where there is no value. */
function shadingClass(shading, value) {
  if (value === undefined) return "none";
  const { centre, span } = shading;
  const half = (BUCKETS - 1) / 2;
  if (centre !== undefined) {
    // Weights end at 0, however far the scale reaches above 1.
    const reach = centre === 1 && value < 1 ? Math.min(1, span) : span;
    const place = reach > 0 ? (value - centre) / reach : 0;
    return "d" + Math.round(half + half * Math.max(-1, Math.min(1, place)));
  }
  const place = Math.max(0, Math.min(1, span > 0 ? value / span : 0));
  return "q" + Math.round((BUCKETS - 1) * (isShare(shading) ? Math.sqrt(place) : place));
}

const WORDS = {
  weight: "Orange tokens count for more than their response's advantage, blue ones for less; tokens without colour keep the weight 1.",
  share: "A token's part in the update, weight × |advantage| × (1 − p), as a share of all kept tokens of the step.",
  measured: "Value after the token minus value before it: orange raised the chance of success, blue lowered it. Hatched: not measured.",
  probability: "How likely the policy was to sample the token.",
  entropy: "Entropy of the policy's distribution at the token, in nats.",
};

const kindOf = ({ key }) => key.split(":")[0].replace("other", "weight");

/** The colours with their ends, and in `words` what the value is. */
function legend(shading, words = true) {
  const { key, span, centre } = shading;
  const bar = el("span", { className: "legend-bar", "aria-hidden": "true" });
  for (let bucket = 0; bucket < BUCKETS; bucket += 1) bar.append(el("i", { className: (centre === undefined ? "q" : "d") + bucket }));
  const low = centre === 1 && span >= 1 ? "0" : `≤ ${valueText(shading, (centre ?? 0) - span)}`;
  const high = key === "probability" ? "1" : `≥ ${valueText(shading, (centre ?? 0) + span)}`;
  const ends = centre === undefined ? ["0", valueText(shading, isShare(shading) ? span / 4 : span / 2), high] : [low, String(centre), high];
  return el("div", { className: "legend" },
    el("div", { role: "img", "aria-label": `Colour scale of ${shading.label}: ${ends.join(" ")}` }, bar,
      el("span", { className: "legend-ends" }, ...ends.map((end) => el("span", {}, end)))),
    words ? el("p", {}, WORDS[kindOf(shading)]) : null);
}
