// Fill the page's head, then its sections; the token view first, since it is what one looks at first.

document.getElementById("title").textContent = visible(page.title);
document.getElementById("lede").textContent = visible(page.lede);
document.getElementById("colophon").textContent = `Made ${page.made} by delta-rlvr. One file, no network: keep it, mail it, open it anywhere.`;

for (const section of document.querySelectorAll("main > section")) {
  if (page.sections.includes(section.id)) continue;
  section.remove();
  document.querySelector(`nav.sections a[href="#${section.id}"]`).remove();
}

const STATUS = { finished: "finished", running: "not finished", interrupted: "interrupted", failed: "failed" };

document.getElementById("run-cards").append(...page.runs.map((run) => {
  const { info } = run;
  const mark = el("i", { className: "swatch", "aria-hidden": "true" });
  mark.style.background = `var(--run-${run.group % 8})`;
  const steps = info.steps === null ? "unknown steps" : `${number(info.steps)}${info.steps_planned ? ` of ${number(info.steps_planned)}` : ""} steps`;
  const facts = [info.model, info.task, info.engine, steps, STATUS[info.status] ?? "status unknown"];
  return el("div", { className: "run-card" }, mark, el("div", {}, el("b", {}, el("bdi", {}, visible(run.label))),
    el("span", {}, visible(facts.filter(Boolean).join(" · ")))));
}));

const problems = page.runs.filter((run) => run.problems.length);
if (problems.length) {
  document.getElementById("problems").append(el("aside", { className: "problems", "aria-label": "What is missing" },
    el("h2", {}, "What is missing or damaged"),
    ...problems.map((run) => el("div", {}, el("b", {}, visible(run.name)), el("ul", {}, ...run.problems.map((problem) => el("li", {}, visible(problem))))))));
}

const tokenView = new TokenView(document.getElementById("tokens-view"), page.runs);
await tokenView.ready;
// Let the tokens paint before the charts are drawn.
await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
const draw = (section, view) => (page.sections.includes(section) ? view(document.getElementById(`${section}-view`)) : null);
draw("clouds", (root) => new CloudView(root, page.runs));
draw("comparison", (root) => comparisonView(root, page));
const charted = [
  draw("dynamics", (root) => new DynamicsView(root, page)),
  draw("discriminator", (root) => new DiscriminatorView(root, page.runs)),
];

// Canvas charts do not follow the style sheet by themselves.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const view of charted) if (view?.charts) view.draw();
});

// The section that is being read is marked in the navigation.
const links = new Map([...document.querySelectorAll("nav.sections a")].map((link) => [link.hash.slice(1), link]));
const reading = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) if (isIntersecting) {
    for (const link of links.values()) link.removeAttribute("aria-current");
    const link = links.get(target.id);
    link.setAttribute("aria-current", "true");
    link.parentElement.scrollLeft = link.offsetLeft - 40; // on a narrow screen the navigation scrolls
  }
}, { rootMargin: "-30% 0px -60% 0px" });
for (const id of links.keys()) reading.observe(document.getElementById(id));
document.documentElement.dataset.ready = "true";
