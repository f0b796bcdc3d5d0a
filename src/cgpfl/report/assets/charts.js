"use strict";
// Each chart is a function of the data and of what the reader chose → {data, layout, say}: Plotly's traces and
// layout, and a sentence. None of them touches the page.

const REFERENCES = { local: "dash", fedavg: "dot" };
const OVER = { local: ["#1B1F24", "#FFFFFF"], fedavg: ["#8A929C", "#8A929C"] }; // where dashes tell runs apart
// Okabe & Ito's and Paul Tol's colours: told apart by colour-blind readers, too. [on white, on black]
const STRONG = [
  ["#0072B2", "#56B4E9"],
  ["#D55E00", "#F08A3C"],
  ["#009E73", "#2FC79B"],
  ["#B5478B", "#E69FC6"],
];
const MUTED = [
  ["#AA4499", "#D88CCB"],
  ["#117733", "#5DBB7C"],
  ["#B8962E", "#DDCC77"],
  ["#882255", "#D0708F"],
  ["#44AA99", "#66CCBB"],
  ["#332288", "#9D92E0"],
  ["#CC6677", "#E38B99"],
  ["#777722", "#B5B54A"],
  ["#3B8BBE", "#88CCEE"],
];
const CONTEXTS = [
  "#0072B2",
  "#E69F00",
  "#009E73",
  "#CC79A7",
  "#56B4E9",
  "#D55E00",
  "#F0E442",
  "#7A5195",
  "#8C8C8C",
  "#A6761D",
];
const SYMBOLS = ["circle", "square", "diamond", "cross", "triangle-up", "x", "pentagon", "hexagon"];
const GAIN = ["#009E73", "#2FC79B"],
  LOSS = ["#AA3377", "#E06FA8"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
const RUN_DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const RUN_WORDS = ["Solid", "dashes", "dots", "dashes and dots", "long dashes", "long dashes and dots"];
const NAMED = 50; // so many clients have their names on an axis; more have them under the pointer

/** A line style a method, the same everywhere: CGPFL strong, references grey, the others muted. */
function stylesOf(runs) {
  const names = new Map();
  for (const run of runs) for (const m of run.methods) if (!names.has(m.label)) names.set(m.label, m.name);
  const strong = [...names].filter(([, name]) => name.startsWith("cgpfl")).map(([label]) => label);
  const styles = new Map();
  let others = 0;
  for (const [label, name] of names) {
    if (name in REFERENCES)
      styles.set(label, { colour: ["#555B63", "#B4BAC2"], dash: REFERENCES[name], width: 1.8, fixed: true, over: OVER[name] });
    else if (strong.includes(label)) {
      const i = strong.indexOf(label);
      styles.set(label, { colour: STRONG[i % 4], dash: i % 2 ? "9px,7px" : "solid", width: 2.6 });
    } else {
      const i = others++,
        dash = DASHES[Math.floor(i / MUTED.length) % 4];
      styles.set(label, {
        colour: MUTED[i % MUTED.length],
        dash,
        width: strong.length ? 1.4 : 2,
        opacity: strong.length ? 0.75 : 1,
      });
    }
  }
  return styles;
}

/** What a client is called: its name, or its number. */
const nameOf = (run, i) => (run.names && run.names[i] != null ? run.names[i] : "client " + i);
const percent = (v, digits = 1) => (v == null ? "–" : (100 * v).toFixed(digits) + " %");
const contextColour = (c) => CONTEXTS[c % CONTEXTS.length];

function traceOf(m, x, y, ui, more = {}) {
  const s = ui.styles.get(m.label),
    few = x.length < 3;
  return {
    type: "scatter",
    mode: few ? "lines+markers" : "lines",
    name: m.label,
    x,
    y,
    opacity: s.opacity ?? 1,
    line: { color: s.colour[ui.dark], dash: s.dash, width: s.width },
    marker: { size: 7 },
    ...more,
  };
}

/** Of an axis of rounds: whole ones alone, where there are few. */
const wholeRounds = (run) => (Math.max(...run.methods.map((m) => m.history.round.at(-1) ?? 0)) <= 12 ? { dtick: 1 } : {});
const visible = (run, ui) => run.methods.filter((m) => !ui.hidden.has(m.label));

/** A metric over rounds, bytes or gradients: a line a method, with the range over seeds where there are several. */
function curves(run, ui) {
  const drawn = ui.curves.find((c) => c.name === ui.y),
    share = drawn.percent,
    over = { round: "round", bytes: "megabytes, sent and received", gradients: "gradient evaluations" };
  const data = [];
  for (const m of visible(run, ui)) {
    const h = m.history,
      y = h[ui.y];
    if (!y) continue;
    const x = ui.x === "bytes" ? h.bytes_up.map((v, i) => (v + h.bytes_down[i]) / 1e6) : h[ui.x];
    const s = ui.styles.get(m.label);
    if (h.band && ui.y === "accuracy") {
      const edge = { type: "scatter", mode: "lines", x, line: { width: 0 }, hoverinfo: "skip", meta: "band" };
      data.push(
        { ...edge, y: h.band.low },
        { ...edge, y: h.band.high, fill: "tonexty", fillcolor: s.colour[ui.dark] + "22" },
      );
    }
    data.push(
      traceOf(m, x, y, ui, {
        meta: "method",
        hovertemplate: `%{y:${share ? ".1%" : ".3g"}}<extra>${m.label}</extra>`,
      }),
    );
    if (m.summary.diverged && y.length) {
      data.push(
        traceOf(m, x.slice(-1), y.slice(-1), ui, {
          mode: "markers",
          meta: "diverged",
          marker: { symbol: "x", size: 11, color: s.colour[ui.dark] },
          hovertemplate: `diverged in round ${m.summary.diverged}<extra>${m.label}</extra>`,
        }),
      );
    }
  }
  const lost = visible(run, ui)
    .filter((m) => m.summary.diverged && !m.history.round.length)
    .map((m) => m.label);
  const missing = visible(run, ui)
    .filter((m) => !m.history[ui.y] && m.history.round.length)
    .map((m) => m.label);
  let say = lost.length ? `Diverged before the first evaluation: ${lost.join(", ")}. ` : "";
  if (missing.length) say += `Not measured of ${missing.join(", ")}.`;
  return {
    data,
    say,
    height: 420,
    layout: {
      hovermode: ui.x === "round" ? "x unified" : "closest",
      uirevision: ui.x + ui.y,
      xaxis: { title: { text: over[ui.x] }, rangemode: "tozero", ...(ui.x === "round" ? wholeRounds(run) : {}) },
      yaxis: { title: { text: drawn.axis }, tickformat: share ? ".1~%" : "" },
    },
  };
}

/** All runs' curves on common axes: a colour a method, a style of lines a run. */
function overlay(runs, ui) {
  const drawn = ui.curves.find((c) => c.name === ui.y);
  const each = runs.map((run, i) => {
    const made = curves(run, ui);
    for (const t of made.data) {
      if (t.meta === "method") {
        t.hovertemplate = t.hovertemplate.replace("</extra>", `, ${run.name}</extra>`);
        const over = ui.styles.get(t.name).over;
        t.line = { color: over ? over[ui.dark] : t.line.color, dash: RUN_DASHES[i % RUN_DASHES.length], width: 2 };
        t.opacity = 1;
      }
    }
    return made;
  });
  const words = runs.map((run, i) => `${RUN_WORDS[i % RUN_WORDS.length]}: ${run.name}`);
  return {
    data: each.flatMap((made) => made.data),
    say: `Colours are methods, as above, local black and fedavg grey; lines are runs. ${words.join(", ")}.`.replace(
      "black",
      ui.dark ? "white" : "black",
    ),
    height: 420,
    layout: { ...each[0].layout, hovermode: "closest", yaxis: { ...each[0].layout.yaxis, title: { text: drawn.axis } } },
  };
}

/** Clients sorted by accuracy: a line a method; the left end is the worst client. */
function sorted(run, ui) {
  const data = [];
  for (const m of visible(run, ui)) {
    if (!m.clients) continue;
    const each = m.clients.correct.map((v, i) => v / m.clients.n[i]).sort((a, b) => a - b);
    const x = each.map((_, i) => (each.length > 1 ? i / (each.length - 1) : 0.5));
    data.push(
      traceOf(m, x, each, ui, {
        meta: "method",
        hovertemplate: `%{x:.0%} of the clients have at most %{y:.1%}<extra>${m.label}</extra>`,
        line: { ...traceOf(m, x, each, ui).line, shape: each.length > 60 ? "linear" : "hv" },
      }),
    );
  }
  return {
    data,
    layout: {
      xaxis: { title: { text: "clients, worst to best" }, tickformat: ".0%", range: [-0.01, 1.01] },
      yaxis: { title: { text: "test " + (run.first || "accuracy") }, tickformat: ".1~%" },
    },
  };
}

/** One method's clients: trained alone, with the shared model, with the personal one; sorted by what they gain. */
function gains(run, m, ui) {
  const local = run.methods.find((o) => o.name === "local" && o.clients && o !== m),
    dark = ui.dark;
  // By client, not by place: of some clients one method has a last evaluation and the other has none.
  const lone = local && new Map(local.clients.client.map((i, at) => [i, local.clients.correct[at] / local.clients.n[at]]));
  const there = m.clients.client.map((_, at) => at).filter((at) => !lone || lone.has(m.clients.client[at]));
  const c = Object.fromEntries(Object.entries(m.clients).map(([name, values]) => [name, there.map((at) => values[at])]));
  const own = c.correct.map((v, i) => v / c.n[i]),
    alone = lone ? c.client.map((i) => lone.get(i)) : null;
  const gain = own.map((v, i) => (alone ? v - alone[i] : v));
  const order = gain.map((_, i) => i).sort((a, b) => gain[a] - gain[b] || own[a] - own[b]);
  const x = order.map((_, i) => i + 1),
    pick = (a) => order.map((i) => a[i]),
    ids = order.map((i) => nameOf(run, c.client[i]));
  const size = order.length > 200 ? 4 : 8,
    data = [];
  const points = (name, y, marker) => ({
    type: "scatter",
    mode: "markers",
    name,
    x,
    y,
    text: ids,
    marker: { size, ...marker },
    hovertemplate: `%{text}: %{y:.1%}<extra>${name}</extra>`,
  });
  if (alone) {
    for (const [name, colour, keep] of [
      ["gains", GAIN[dark], (g) => g > 0],
      ["loses", LOSS[dark], (g) => g < 0],
    ]) {
      const lx = [],
        ly = [];
      order.forEach((i, at) => {
        if (keep(gain[i])) {
          lx.push(at + 1, at + 1, null);
          ly.push(alone[i], own[i], null);
        }
      });
      if (lx.length)
        data.push({
          type: "scatter",
          mode: "lines",
          name,
          x: lx,
          y: ly,
          hoverinfo: "skip",
          line: { color: colour, width: order.length > 200 ? 1 : 2 },
        });
    }
    data.push(points("alone (local)", pick(alone), { symbol: "circle-open", color: dark ? "#B4BAC2" : "#555B63" }));
  }
  if (c.shared)
    data.push(
      points("shared model", pick(c.shared.map((v, i) => v / c.n[i])), {
        symbol: "diamond-open",
        color: dark ? "#DDCC77" : "#8F7A22",
      }),
    );
  data.push(points("personal model", pick(own), { color: ui.styles.get(m.label).colour[dark] }));
  const up = gain.filter((g) => g > 0).length,
    down = gain.filter((g) => g < 0).length;
  const middle = [...gain].sort((a, b) => a - b)[Math.floor(gain.length / 2)] ?? 0;
  const sign = (v) => (v > 0 ? "+" : "") + (100 * v).toFixed(1);
  const say = alone
    ? `${up} of ${gain.length} clients gain over training alone, ${down} lose, ${gain.length - up - down} end the same; in the middle ${sign(middle)} points.`
    : "No local training in this run to compare with.";
  return {
    data,
    say,
    layout: {
      showlegend: true,
      xaxis: {
        title: { text: alone ? "clients, by what they gain" : "clients, by accuracy" },
        range: [0.2, order.length + 0.8],
        showgrid: false,
        ...(order.length <= NAMED
          ? { tickvals: x, ticktext: ids, tickangle: -90, tickfont: { size: order.length > 25 ? 9 : 11 } }
          : { showticklabels: false }),
      },
      yaxis: { title: { text: "test " + (run.first || "accuracy") }, tickformat: ".1~%" },
    },
  };
}

/** One column of the histories, a line a method that has it. */
const column =
  (name, title, format, more = {}) =>
  (run, ui) => ({
    data: visible(run, ui)
      .filter((m) => m.history[name])
      .map((m) =>
        traceOf(m, m.history.round, m.history[name], ui, {
          meta: "method",
          hovertemplate: `%{y:${format}}<extra>${m.label}</extra>`,
        }),
      ),
    layout: {
      hovermode: "x unified",
      xaxis: { title: { text: "round" }, ...wholeRounds(run) },
      yaxis: { title: { text: title }, ...more },
    },
  });

/** How many clients changed their context between two evaluations. */
const moves = (run, ui) => ({
  data: visible(run, ui)
    .filter((m) => m.contexts)
    .map((m) =>
      traceOf(m, m.contexts.rounds, m.contexts.moved, ui, {
        meta: "method",
        hovertemplate: `%{y} moved<extra>${m.label}</extra>`,
      }),
    ),
  layout: {
    hovermode: "x unified",
    xaxis: { title: { text: "round" }, ...wholeRounds(run) },
    yaxis: { title: { text: "clients that moved" }, rangemode: "tozero" },
  },
});
