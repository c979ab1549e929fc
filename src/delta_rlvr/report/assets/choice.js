// What is looked at: one run and one step for all sections, and the token view's prompt and shading. The address has it too:
// #tokens&run=2&step=9&prompt=0&shade=share:weight&beside=other:dapo-ft

const KEYS = ["run", "step", "prompt", "shade", "beside"]; // run: its place on the page, from 1; prompt: its group

const looking = {
  views: [],
  shown: fromAddress(),

  /** Show something else, in every section that has it. */
  show(wanted) {
    const asked = { ...this.shown, ...wanted };
    this.shown = { ...asked };
    for (const view of this.views) view.follow(asked);
    this.remember();
  },

  /** What a section made of it. */
  note(shown) {
    Object.assign(this.shown, shown);
  },

  /** Into the address, a moment later: a slider that is dragged changes it often. */
  remember() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const given = new URLSearchParams();
      for (const key of KEYS) if (this.shown[key] !== undefined) given.set(key, this.shown[key]);
      const address = `#${this.shown.section ?? ""}&${given}`;
      if (address !== location.hash) history.replaceState(null, "", address);
    }, 250);
  },
};

function fromAddress() {
  const [section, ...pairs] = location.hash.slice(1).split("&");
  const given = new URLSearchParams(pairs.join("&"));
  const shown = Object.fromEntries(KEYS.filter((key) => given.has(key)).map((key) => [key, given.get(key)]));
  return section ? { ...shown, section } : shown;
}

/** Twice more in the next frames: heights of text that was never laid out are estimates, and change as one comes by. */
function scrollToSection(again = 2) {
  document.getElementById(looking.shown.section)?.scrollIntoView();
  if (again) requestAnimationFrame(() => scrollToSection(again - 1));
}

addEventListener("hashchange", () => {
  looking.show(fromAddress());
  scrollToSection();
});

/** Controls for a run and, where `stepsOf` has any, one of its sampled steps. `changed` gets the run and the step's place. */
class RunAndStep {
  constructor(runs, stepsOf, changed) {
    Object.assign(this, { runs, stepsOf, changed });
    this.runChoice = choice(runs.map((run) => [run.place + 1, visible(run.label)]), (run) => looking.show({ run }));
    this.slider = el("input", { type: "range", min: 0, step: 1, oninput: () => looking.show({ run: this.run.place + 1, step: stepsOf(this.run)[this.slider.value] }) });
    this.output = el("output", { className: "step-output" });
    this.fields = [field("Run", this.runChoice), field("Step", this.slider, this.output)];
    this.fields[0].hidden = runs.length === 1;
  }

  /** Go where the page is, if this section has it; else stay, or start at the last step with a signal of the first run that has weights, before others one of
   * a rule of the reader's own (`my_rules.py:MyRule`). */
  follow(shown) {
    const run = this.runs.find(({ place }) => place + 1 === Number(shown.run))
      ?? this.run ?? this.runs.find(({ weighted, info }) => weighted && info.method?.includes(":"))
      ?? this.runs.find(({ weighted }) => weighted) ?? this.runs[0];
    const steps = this.stepsOf(run);
    let at = steps.indexOf(Number(shown.step));
    if (at < 0 && run === this.run) ({ at } = this);
    if (at < 0) at = steps.indexOf(run.steps.findLast(({ prompts }) => prompts.some(({ signal }) => signal))?.step);
    if (at < 0) at = steps.length - 1;
    if (run === this.run && at === this.at) return false;
    Object.assign(this, { run, at });
    this.runChoice.value = run.place + 1;
    this.slider.max = steps.length - 1;
    this.slider.value = at;
    this.fields[1].hidden = !steps.length || run.info.explained?.step === null;
    this.slider.hidden = steps.length === 1;
    this.output.value = `step ${number(steps[at])}${steps.length > 1 ? `, sample ${number(at + 1)} of ${number(steps.length)}` : ""}`;
    this.slider.setAttribute("aria-valuetext", this.output.value);
    this.changed(run, at);
    return true;
  }
}
