"use strict";
// The page around the charts: which panels there are, and what is on them.

const $ = (id) => document.getElementById(id);
const ui = { hidden: new Set(), x: "round", y: "accuracy", dark: 0, chosen: {}, at: {} };
const panels = new Map(); // key → {box, chart, make, drawn}
let page = JSON.parse($("data").textContent);

function element(tag, attributes = {}, ...children) {
  const node = Object.assign(document.createElement(tag), attributes);
  node.append(...children);
  return node;
}

/** Read the colours that the style sheet has chosen. */
function look() {
  const style = getComputedStyle(document.body);
  ui.text = style.color;
  ui.ground = style.backgroundColor;
  ui.dark =
    ui.ground
      .match(/\d+/g)
      .slice(0, 3)
      .reduce((sum, v) => sum + Number(v), 0) < 384
      ? 1
      : 0;
  ui.line = ui.dark ? "#353b43" : "#d9dde2";
  ui.styles = stylesOf(page.runs);
  ui.curves = page.curves;
}

// Panels

/** Note that a section has a panel; it is drawn when it comes near the screen. `make()` gives what a chart gives. */
function panel(section, key, title, make, { full = false, tools = [] } = {}) {
  let p = panels.get(key);
  if (!p) {
    const chart = element("div", { className: "chart" });
    const head = element("header", {}, element("h3", {}), element("span", { className: "pick" }));
    const box = element(
      "div",
      { className: full ? "panel full" : "panel" },
      head,
      element("p", { className: "say quiet" }),
      chart,
    );
    box.dataset.key = key;
    p = { box, chart };
    panels.set(key, p);
    nearby.observe(box);
  }
  p.box.querySelector("h3").textContent = title;
  p.box.querySelector(".pick").replaceChildren(...tools);
  Object.assign(p, { make, drawn: false, used: true, section });
}

/** Put the panels in place: the same chart of all runs side by side. */
function arrange() {
  const kinds = [...new Set([...panels.keys()].map((key) => key.split("/")[0]))];
  for (const kind of kinds) {
    for (const [key, p] of panels)
      if (key.split("/")[0] === kind) document.querySelector(`#${p.section} .panels`).append(p.box);
  }
}

function draw(p) {
  const made = p.make();
  p.drawn = true;
  const say = p.box.querySelector(".say");
  say.textContent = made.say || "";
  say.hidden = !made.say;
  p.chart.classList.toggle("text", Boolean(made.html));
  if (made.html) return p.chart.replaceChildren(made.html);
  const axis = { gridcolor: ui.line, linecolor: ui.line, zerolinecolor: ui.line, automargin: true };
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ui.text, size: 13, family: getComputedStyle(document.body).fontFamily },
    margin: { l: 48, r: 12, t: 10, b: 44 },
    height: made.height || 360,
    showlegend: false,
    uirevision: "same",
    dragmode: "zoom",
    legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom", font: { size: 12 } },
    hoverlabel: { namelength: -1, bgcolor: ui.ground, font: { color: ui.text } },
    ...made.layout,
  };
  for (const name of Object.keys(layout).filter((k) => /^[xy]axis/.test(k)))
    layout[name] = { ...axis, ...layout[name] };
  if (layout.showlegend) layout.margin.t = 56; // room for the legend, whatever the width
  if (ui.paper) layout.width = ui.paper;
  if (!made.data.length) {
    layout.annotations = [
      { text: "nothing to show", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 },
    ];
    layout.xaxis = layout.yaxis = { visible: false };
    layout.height = 160;
  }
  return Plotly.react(p.chart, made.data, layout, {
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  });
}

const nearby = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const p = panels.get(entry.target.dataset.key);
      p.near = entry.isIntersecting;
      if (p.near && !p.drawn && window.Plotly) draw(p);
    }
  },
  { rootMargin: "400px" },
);

/** Draw what is near the screen, or all of it. */
function refresh(all = false) {
  for (const p of panels.values()) {
    p.drawn = false;
    if ((p.near || all) && window.Plotly) draw(p);
  }
}

// What there is

/** A menu of the methods that have something to show; at first CGPFL-Auto, or another CGPFL. */
function menu(key, methods) {
  const ours = methods.filter((m) => m.name.startsWith("cgpfl"));
  const best = ours.find((m) => m.name === "cgpfl-auto") || ours.pop() || methods[methods.length - 1];
  if (!methods.some((m) => m.label === ui.chosen[key])) ui.chosen[key] = best.label;
  const select = element(
    "select",
    { ariaLabel: "method" },
    ...methods.map((m) => new Option(m.label, m.label, false, m.label === ui.chosen[key])),
  );
  select.onchange = () => {
    ui.chosen[key] = select.value;
    build();
  };
  return [
    methods.find((m) => m.label === ui.chosen[key]),
    methods.length > 1 ? [select] : [element("span", { className: "quiet" }, methods[0].label)],
  ];
}

/** What can be drawn over rounds, as a menu; what was chosen stays. */
function offer() {
  $("y").replaceChildren(...ui.curves.map((c) => new Option(c.menu, c.name, false, c.name === ui.y)));
}

/** Whether everybody was in one context at every evaluation: there is nothing to compare. */
const oneContext = (m) => new Set(m.contexts.map.flatMap((row) => row.filter((_, i) => i % 2 === 0))).size < 2;

function build() {
  offer();
  for (const p of panels.values()) p.used = false;
  document.documentElement.style.setProperty("--columns", Math.max(2, page.runs.length));
  if (page.runs.length > 1)
    panel("curves", "overlay/all", "All runs on common axes", () => overlay(page.runs, ui), { full: true });
  for (const run of page.runs) {
    const of = page.runs.length > 1 ? ` – ${run.name}` : "",
      id = run.name;
    panel("curves", "curves/" + id, run.title + (page.runs.length > 1 ? of : ""), () => curves(run, ui), {
      full: page.runs.length === 1,
    });
    const known = run.methods.filter((m) => m.clients);
    if (known.length) {
      panel("clients", "sorted/" + id, "Clients sorted by accuracy" + of, () => sorted(run, ui));
      const others = known.filter((m) => m.name !== "local"),
        [m, tools] = menu("gains/" + id, others.length ? others : known);
      panel("clients", "gains/" + id, "Who gains and who loses" + of, () => gains(run, m, ui), { tools });
    }
    contextPanels(run, id, of);
    insidePanels(run, id, of);
  }
  for (const [key, p] of panels)
    if (!p.used) {
      nearby.unobserve(p.box);
      p.box.remove();
      panels.delete(key);
    }
  arrange();
  for (const name of ["curves", "clients", "contexts", "inside"])
    $(name).hidden = !document.querySelector(`#${name} .panel`);
  refresh();
}

function contextPanels(run, id, of) {
  const found = run.methods.filter((m) => m.contexts);
  if (!found.length) return;
  const [m, tools] = menu("contexts/" + id, found),
    c = m.contexts,
    models = c.models,
    full = page.runs.length === 1;
  panel("contexts", "found/" + id, `${m.label}: what was found` + of, () => ({ html: verdict(m) }), { tools, full });
  const several = !oneContext(m);
  if (several)
    panel("contexts", "map/" + id, `${m.label}: which context each client was in` + of, () => contextMap(run, m, ui), {
      full,
    });
  if (c.curve && c.curve.k.length > 1)
    panel("contexts", "k/" + id, `${m.label}: choosing the number of contexts` + of, () => choosing(run, m, ui));
  if (c.trust)
    panel("contexts", "differ/" + id, `${m.label}: how much clients differ` + of, () => differences(run, m, ui));
  if (c.groups.length)
    panel("contexts", "groups/" + id, `${m.label}: contexts at the end` + of, () => ({ html: groupTable(m) }));
  if (c.groups.length && c.groups[0].labels)
    panel("contexts", "labels/" + id, `${m.label}: labels in each context` + of, () => labelShares(run, m, ui));
  if (models)
    panel("contexts", "projection/" + id, `${m.label}: models, projected` + of, () => projection(run, m, ui));
  if (models && models.distance && models.distance.length > 1)
    panel("contexts", "distances/" + id, `${m.label}: distances between the contexts' models` + of, () =>
      modelDistances(run, m, ui),
    );
  if (several && c.rounds.length > 1) {
    const last = c.rounds.length - 1,
      busy = c.moved.reduce((best, v, i) => (v > 0 && i > 0 ? i : best), last);
    const e = () => Math.min(ui.at[id + m.label] ?? busy, last);
    const slider = element("input", { type: "range", min: 1, max: last, value: e() }),
      at = element("output", {}, String(c.rounds[e()]));
    slider.oninput = () => {
      ui.at[id + m.label] = Number(slider.value);
      at.textContent = c.rounds[e()];
      draw(panels.get("q/" + id));
    };
    panel(
      "contexts",
      "q/" + id,
      `${m.label}: Q, from one evaluation to the next` + of,
      () => transition(run, m, ui, e()),
      { tools: [element("label", { className: "quiet" }, "up to round ", slider, " ", at)] },
    );
  }
}

function insidePanels(run, id, of) {
  const has = (name) => run.methods.some((m) => m.history[name]);
  const add = (key, title, chart) => panel("inside", `${key}/${id}`, title + of, () => chart(run, ui));
  if (has("ari"))
    add("ari", "Agreement with the true contexts (ARI; 1 = exact, 0 = chance)", column("ari", "ARI", ".2f"));
  if (run.methods.some((m) => m.contexts && m.contexts.moved.some((n) => n > 0)))
    add("moved", "Clients that changed their context", moves);
  if (has("objective_context"))
    add(
      "distance",
      "Distance of personal models to their shared one, mean ‖θ − ω‖²",
      column("objective_context", "mean ‖θ − ω‖²", ".3g", { rangemode: "tozero" }),
    );
  if (has("kmeans_iterations"))
    add("kmeans", "Iterations of k-means", column("kmeans_iterations", "iterations", "d", { rangemode: "tozero" }));
}

function groupTable(m) {
  const box = element("div", { className: "wide", innerHTML: m.contexts.table });
  for (const s of box.querySelectorAll(".swatch")) s.style.background = contextColour(Number(s.dataset.context));
  return box;
}

/** Say which tables go on to the right, where the screen ends before them. */
function overflowing() {
  for (const box of document.querySelectorAll(".wide")) {
    const hint = box.nextElementSibling;
    if (hint && hint.classList.contains("more")) hint.hidden = box.scrollWidth <= box.clientWidth + 1;
  }
}

/** Chips that are legend and filter at once. */
function filter() {
  $("filter").replaceChildren(
    ...[...ui.styles].map(([label, s]) => {
      const box = element("input", { type: "checkbox", checked: !ui.hidden.has(label), disabled: Boolean(s.fixed) });
      const chip = element(
        "label",
        {
          className: (s.fixed ? "fixed " : "") + (box.checked ? "" : "off"),
          title: s.fixed ? "reference, always shown" : "",
        },
        box,
      );
      const dash = { dash: "6 3", dot: "2 3", dashdot: "6 3 2 3", "9px,7px": "7 4" }[s.dash] || "";
      chip.insertAdjacentHTML(
        "beforeend",
        `<svg width="22" height="8" aria-hidden="true"><line x1="0" x2="22" y1="4" y2="4" stroke="${s.colour[ui.dark]}" stroke-width="${s.width + 0.4}" stroke-dasharray="${dash}"/></svg>`,
      );
      chip.append(label);
      box.onchange = () => {
        ui.hidden[box.checked ? "delete" : "add"](label);
        chip.classList.toggle("off", !box.checked);
        refresh();
      };
      return chip;
    }),
  );
}
