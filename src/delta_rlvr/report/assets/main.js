// Fill the page's head, then its sections in their order; the ones that are seen first are drawn first.

document.getElementById("title").append(...breakable(page.title));
document.getElementById("lede").append(...coded(page.lede));
document.getElementById("colophon").textContent = `Made ${page.made} by delta-rlvr. One file, no network: keep it, mail it, open it anywhere.`;

const STATUS = { finished: "finished", running: "not finished", interrupted: "interrupted", failed: "failed" };

/** What the runs are: once, where they agree. */
function facts() {
  // Where rollouts are explained, nothing was trained: there are no steps, no seed and no end.
  const factsOf = ({ info }) => [info.model, info.task, info.engine, info.explained ? null
    : info.steps === null ? "unknown steps" : info.steps_planned && info.steps_planned !== info.steps ? `${number(info.steps)} of ${plural(info.steps_planned, "step")}` : plural(info.steps, "step")];
  const shared = factsOf(page.runs[0]).filter((fact, place) => page.runs.every((run) => factsOf(run)[place] === fact));
  return [el("span", {}, visible(shared.filter(Boolean).join(" · "))), ...page.groups.map(({ label, members }, place) => {
    const runs = members.map((member) => page.runs[member]);
    const mark = el("i", { className: "swatch", "aria-hidden": "true" });
    mark.style.background = `var(--run-${place % 8})`;
    const trained = runs.filter(({ info }) => !info.explained);
    const seeds = trained.map(({ info }) => info.seed).filter((seed) => seed !== null);
    const states = [...new Set(trained.map(({ info }) => STATUS[info.status] ?? "status unknown"))];
    const own = runs.length === 1 ? factsOf(runs[0]).filter((fact) => !shared.includes(fact)) : [];
    const words = [label, seeds.length ? `seed${seeds.length > 1 ? "s" : ""} ${seeds.join(", ")}` : null, ...own, states.join(", ")];
    return el("span", { className: "run" }, mark, visible(words.filter(Boolean).join(" · ")));
  })];
}
document.getElementById("facts").append(...facts());

const problems = page.runs.filter((run) => run.problems.length);
if (problems.length) {
  document.getElementById("problems").append(el("aside", { className: "problems", "aria-label": "What is missing" },
    el("h2", {}, "Missing or damaged"),
    ...problems.map((run) => el("div", {}, el("b", {}, visible(run.name)), el("ul", {}, ...run.problems.map((problem) => el("li", {}, visible(problem))))))));
}

const DRAWN_BY = {
  comparison: (root) => comparisonView(root, page),
  tokens: (root) => new TokenView(root, page.runs),
  weights: (root) => new WeightsView(root, page.runs),
  clouds: (root) => new CloudView(root, page.runs),
  dynamics: (root) => new DynamicsView(root, page),
  discriminator: (root) => new DiscriminatorView(root, page.runs),
};
const charted = [];
for (const section of page.sections) {
  const view = DRAWN_BY[section](document.getElementById(`${section}-view`));
  if (view?.follow) looking.views.push(view);
  if (view?.charts) charted.push(view);
  if (view?.ready) await view.ready;
  document.getElementById(section).classList.add("drawn"); // only now it is shown, so that nothing moves afterwards
  // Let the tokens paint before the rest is drawn; a page that is not on a screen gets no frame.
  if (section === "tokens") await new Promise((resolve) => { requestAnimationFrame(() => setTimeout(resolve)); setTimeout(resolve, 200); });
}
if (looking.shown.section) scrollToSection();

// Canvas charts do not follow the style sheet by themselves.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const view of charted) view.draw();
});

// The section that is being read is marked in the navigation: at the end of the page the last one, which may be too short to get there.
const links = new Map([...document.querySelectorAll("nav.sections a")].map((link) => [link.hash.slice(1), link]));
const reading = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) if (isIntersecting && !atTheEnd()) mark(target.id);
}, { rootMargin: "-30% 0px -60% 0px" });
const atTheEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
function mark(id) {
  const link = links.get(id);
  if (link.hasAttribute("aria-current")) return;
  for (const one of links.values()) one.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  link.parentElement.scrollLeft = link.offsetLeft - 40; // on a narrow screen the navigation scrolls
  const moved = looking.shown.section !== undefined && looking.shown.section !== id;
  looking.note({ section: id });
  if (moved) looking.remember();
}
addEventListener("scroll", () => {
  if (scrollY && atTheEnd()) mark([...links.keys()].at(-1));
}, { passive: true });
for (const id of links.keys()) reading.observe(document.getElementById(id));
document.documentElement.dataset.ready = "true";
