"use strict";
// Why a method's contexts are as many as they are; see charts.js.

const GREY = ["#555B63", "#B4BAC2"],
  STAR = ["#B5478B", "#F0E442"];

/** What K was chosen by: e(K), or the error of predicting samples left out. */
const choosing = (run, m, ui) => (m.contexts.curve.score ? crossFitting : choosingK)(run, m, ui);

/** e(K) with its two terms, the chosen K starred. */
function choosingK(run, m, ui) {
  const { k, complexity, error } = m.contexts.curve,
    chosen = m.summary.contexts.k,
    at = k.indexOf(chosen),
    dark = ui.dark;
  const line = (name, y, colour, dash, more = {}) => ({
    type: "scatter",
    mode: "lines",
    name,
    x: k,
    y,
    line: { color: colour, dash, width: 2 },
    hovertemplate: `K = %{x}: %{y:.3g}<extra>${name}</extra>`,
    ...more,
  });
  const data = [
    line("complexity: more models, less data for each", complexity, dark ? "#B4BAC2" : "#555B63", "dash"),
    line(
      "μ · cost: models away from their clients",
      error.map((v, i) => v - complexity[i]),
      dark ? "#F08A3C" : "#D55E00",
      "dot",
    ),
    line("e(K), their sum", error, dark ? "#56B4E9" : "#0072B2", "solid", { mode: "lines+markers" }),
    {
      type: "scatter",
      mode: "markers",
      name: `chosen: K = ${chosen}`,
      x: [chosen],
      y: [error[at]],
      marker: { symbol: "star", size: 17, color: dark ? "#F0E442" : "#B5478B" },
      hovertemplate: `K = ${chosen}<extra>chosen</extra>`,
    },
  ];
  return {
    data,
    layout: {
      showlegend: true,
      xaxis: { title: { text: "number of contexts K" }, dtick: k.length <= 12 ? 1 : undefined },
      yaxis: { title: { text: "terms of the bound" }, rangemode: "tozero" },
    },
    height: 400,
  };
}

/** Error on samples left out, over K, with standard errors; K = N, everybody alone, stands apart. */
function crossFitting(run, m, ui) {
  const { k, score, error, shared, personal } = m.contexts.curve,
    last = k.length - 1,
    most = k[last - 1],
    dark = ui.dark,
    alone = m.contexts.alone;
  const x = k.map((v, i) => (i < last ? v : most + Math.max(1, 0.12 * most)));
  const name = (i) => (i < last ? `K = ${k[i]}` : `K = N = ${k[i]}: everybody alone`);
  const text = k.map(
    (_, i) =>
      `${name(i)}<br>error ${score[i].toFixed(4)} ± ${error[i].toFixed(4)}<br>` +
      `ρ0 (context) ${shared[i].toFixed(2)}, ρ2 (own) ${personal[i].toFixed(2)}`,
  );
  const part = (of, colour, more) => ({
    type: "scatter",
    x: of(x),
    y: of(score),
    text: of(text),
    error_y: { type: "data", array: of(error), color: GREY[dark], thickness: 1.4, width: most > 20 ? 2 : 4 },
    hovertemplate: "%{text}<extra></extra>",
    line: { color: colour, width: 2 },
    ...more,
  });
  const at = alone ? last : k.indexOf(m.summary.contexts.k),
    blue = dark ? "#56B4E9" : "#0072B2",
    orange = dark ? "#F08A3C" : "#D55E00";
  const data = [
    part((v) => v.slice(0, last), blue, { name: "K contexts", mode: "lines+markers", marker: { size: 7 } }),
    part((v) => v.slice(last), orange, {
      name: "everybody alone",
      mode: "markers",
      marker: { symbol: "diamond", size: 10, color: orange },
    }),
    {
      type: "scatter",
      mode: "markers",
      name: alone ? "chosen: everybody alone" : `chosen: K = ${k[at]}`,
      x: [x[at]],
      y: [score[at]],
      marker: { symbol: "star", size: 17, color: STAR[dark] },
      hovertemplate: `${name(at)}<extra>chosen</extra>`,
    },
  ];
  const step = Math.max(1, Math.ceil(most / 10)),
    ticks = x.map((_, i) => i).filter((i) => i === last || i % step === 0),
    between = (x[last - 1] + x[last]) / 2;
  return {
    data,
    say: alone
      ? "Error of predicting samples left out; 1 = of predicting nothing. Chosen: nobody's context, whatever K, says " +
        "enough about a client that is not the client itself."
      : "Error of predicting samples left out; 1 = of predicting nothing. Bars: standard error of the difference to the " +
        "best. Chosen: the smallest K that no larger one beats by more than that.",
    layout: {
      showlegend: true,
      xaxis: {
        title: { text: "number of contexts K" },
        tickvals: ticks.map((i) => x[i]),
        ticktext: ticks.map((i) => (i < last ? String(k[i]) : "N = " + k[i])),
        zeroline: false,
      },
      yaxis: { title: { text: "error on samples left out" } },
      shapes: [
        {
          type: "line",
          x0: between,
          x1: between,
          yref: "paper",
          y0: 0,
          y1: 1,
          line: { color: GREY[dark], dash: "dot", width: 1 },
        },
      ],
    },
    height: 400,
  };
}

/**
 * How much clients differ by their contexts, inside them, and by the noise of their samples alone; and, below, how many
 * use their context's model, how many their own, and how many something between.
 */
function differences(run, m, ui) {
  const c = m.contexts,
    last = (row) => c.map[row][c.map[row].length - 2],
    of = new Map();
  c.trust.forEach((trust, row) => {
    const at = c.alone ? 0 : last(row);
    of.set(at, [...(of.get(at) || []), Math.min(trust, 0.9999)]); // 1 is in the last bin
  });
  const shares = [
    ...(c.alone ? [] : [["between contexts", c.between, ["#0072B2", "#56B4E9"]]]),
    [c.alone ? "between clients" : "inside a context", c.within, ["#D55E00", "#F08A3C"]],
    ["noise of their samples", c.noise, ["#9AA1AA", "#6B737D"]],
  ].map(([name, share, colour]) => ({
    type: "bar",
    orientation: "h",
    name: `${name} ${percent(share, 0)}`,
    x: [share],
    y: ["variance"],
    marker: { color: colour[ui.dark] },
    hovertemplate: `${percent(share)}<extra>${name}</extra>`,
  }));
  const trusts = [...of.keys()]
    .sort((a, b) => a - b)
    .map((at) => ({
      type: "histogram",
      x: of.get(at),
      xaxis: "x2",
      yaxis: "y2",
      xbins: { start: 0, end: 1, size: 0.05 },
      showlegend: false,
      marker: { color: c.alone ? GREY[ui.dark] : contextColour(at) },
      hovertemplate: `%{y} clients, trust %{x}<extra>${c.alone ? "" : "context " + at}</extra>`,
    }));
  const same = c.trust.filter((v) => v < 0.1).length,
    own = c.trust.filter((v) => v >= 0.5).length;
  return {
    data: [...shares, ...trusts],
    say:
      "Above: shares of the variance of clients' updates in the warm-up. Below: trust, 0 = the context's model is used " +
      `as it is, 1 = the client's own; of ${c.trust.length} clients ${same} are below 0.1 and ${own} from 0.5 up.`,
    layout: {
      barmode: "stack",
      showlegend: true,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal", font: { size: 12 } },
      xaxis: { tickformat: ".0%", range: [0, 1], showgrid: false, anchor: "y" },
      yaxis: { title: { text: "variance" }, domain: [0.8, 1], showticklabels: false, showgrid: false, fixedrange: true },
      xaxis2: { title: { text: "trust" }, range: [-0.01, 1.01], anchor: "y2" },
      yaxis2: { title: { text: "clients" }, domain: [0, 0.62], rangemode: "tozero" },
    },
    height: 400,
  };
}

/** The contexts in a sentence, and what else to know. */
function verdict(m) {
  const notes = m.summary.notes || [],
    { sentence, groups } = m.contexts,
    said = sentence || `${groups.length} context${groups.length === 1 ? "" : "s"} with members`,
    alike = oneContext(m) ? ["There is one context, so there is no chart that compares some."] : [];
  return element(
    "div",
    {},
    element("p", {}, said[0].toUpperCase() + said.slice(1) + "."),
    ...alike.map((line) => element("p", { className: "quiet" }, line)),
    ...(notes.length ? [element("ul", { className: "notes" }, ...notes.map((note) => element("li", {}, note)))] : []),
  );
}
