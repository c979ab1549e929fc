// From a token's value to one of 15 colour classes, and the legend that explains them.

const BUCKETS = 15; // odd: the middle one is the scale's centre

/** A token's value under a shading; undefined where the response has none. */
function shadingValue(shading, response, place) {
  if (shading.key === "probability") {
    const logp = response.logps?.[place];
    return logp === undefined || logp === null ? undefined : Math.exp(logp);
  }
  const column = shading.key.startsWith("other:")
    ? response.other_weights?.[shading.key.slice(6)]
    : response[shading.key];
  return column?.[place] ?? undefined;
}

/** Class of a value: "d0".."d14" around the centre 1, "q0".."q14" from 0 up, "none" where there is no value. */
function shadingClass(shading, value) {
  if (value === undefined) return "none";
  const half = (BUCKETS - 1) / 2;
  if (shading.kind === "diverging") {
    // Weights end at 0, however far the scale reaches above 1.
    const reach = value < 1 ? Math.min(1, shading.span) : shading.span;
    const place = reach > 0 ? (value - 1) / reach : 0;
    return "d" + Math.round(half + half * Math.max(-1, Math.min(1, place)));
  }
  const place = shading.span > 0 ? value / shading.span : 0;
  return "q" + Math.round((BUCKETS - 1) * Math.max(0, Math.min(1, place)));
}

function legend(shading) {
  const diverging = shading.kind === "diverging";
  const bar = el("span", { className: "legend-bar", "aria-hidden": "true" });
  for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
    bar.append(el("i", { className: (diverging ? "d" : "q") + bucket }));
  }
  const ends = diverging
    ? [shading.span < 1 ? `≤ ${number(1 - shading.span)}` : "0", "1", `≥ ${number(1 + shading.span)}`]
    : ["0", "", shading.key === "probability" ? "1" : `≥ ${number(shading.span)}`];
  const words = diverging ? "blue: counts less, orange: counts more" : "darker: larger";
  return el(
    "div",
    { className: "legend", role: "img", "aria-label": `Colour scale of ${shading.label}: ${ends.join(" ")}; ${words}` },
    bar,
    el("span", { className: "legend-ends" }, ...ends.map((end) => el("span", {}, end))),
  );
}
