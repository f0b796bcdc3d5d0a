"use strict";
// Charts of one method's contexts; see charts.js.

/** The context map [clients][rounds] from its run lengths. */
const expand = (c) =>
  c.map.map((runs) => {
    const out = [];
    for (let i = 0; i < runs.length; i += 2) for (let n = 0; n < runs[i + 1]; n++) out.push(runs[i]);
    return out;
  });

/** A colour scale of whole numbers 0..n-1. */
function steps(n, colour) {
  const scale = [];
  for (let i = 0; i < n; i++) scale.push([i / n, colour(i)], [(i + 1) / n, colour(i)]);
  return { colorscale: scale, zmin: -0.5, zmax: n - 0.5, showscale: false };
}

/** Clients × rounds, coloured by context; where the truth is known it is the grey strip at the left. */
function contextMap(run, m, ui) {
  const c = m.contexts,
    table = expand(c),
    end = (i) => table[i][table[i].length - 1];
  const truth = run.truth && c.clients.map((i) => run.truth[i]);
  const order = table.map((_, i) => i).sort((a, b) => end(a) - end(b) || (truth ? truth[a] - truth[b] : 0) || a - b);
  const z = order.map((i) => table[i]),
    most = Math.max(...z.map((row) => Math.max(...row))) + 1;
  const names = order.map((i) => c.clients[i]),
    y = order.map((_, i) => i);
  const data = [
    {
      type: "heatmap",
      z,
      x: c.rounds,
      y,
      customdata: names.map((i) => z[0].map(() => nameOf(run, i))),
      ...steps(most, contextColour),
      hovertemplate: "%{customdata}, round %{x}: context %{z}<extra></extra>",
    },
  ];
  const layout = {
    xaxis: { title: { text: "round" }, ...wholeRounds(run), domain: [truth ? 0.045 : 0, 1], showgrid: false },
    yaxis: {
      title: { text: "clients, by final context" },
      anchor: truth ? "x2" : "x",
      ticks: "",
      showticklabels: false,
      showgrid: false,
      autorange: "reversed",
    },
  };
  if (truth) {
    const shades = Math.max(...truth) + 1;
    data.push({
      type: "heatmap",
      z: order.map((i) => [truth[i]]),
      x: ["truth"],
      y,
      xaxis: "x2",
      ...steps(shades, (i) => {
        const v = 70 + Math.round((150 * i) / Math.max(shades - 1, 1));
        return `rgb(${v},${v},${v})`;
      }),
      customdata: names.map((i) => [nameOf(run, i)]),
      hovertemplate: "%{customdata}: truly in context %{z}<extra></extra>",
    });
    layout.xaxis2 = { domain: [0, 0.03], ticks: "", showticklabels: false, showgrid: false };
  }
  return {
    data,
    layout,
    height: Math.min(620, Math.max(220, 120 + 9 * z.length)),
    say: "One line a client, by final context." + (truth ? " Grey strip: the true contexts." : ""),
  };
}

const cells = (z, format) => z.map((row) => row.map((v) => (v == null ? "" : format(v))));
const BLUES = [
  ["#F3F6FA", "#20262D"],
  ["#9CC3E0", "#2C5F86"],
  ["#0B5A93", "#8CCBF2"],
];
const blues = (ui) => BLUES.map((pair, i) => [i / 2, pair[ui.dark]]);

/** A matrix with its numbers written in, as long as there is room. */
function matrix(z, x, y, ui, format, hover) {
  const room = x.length <= 12 && y.length <= 20;
  return {
    type: "heatmap",
    z,
    x,
    y,
    colorscale: blues(ui),
    zmin: 0,
    showscale: !room,
    xgap: 1,
    ygap: 1,
    colorbar: { thickness: 10 },
    hovertemplate: hover,
    ...(room ? { text: cells(z, format), texttemplate: "%{text}" } : {}),
  };
}

/** The layout of a matrix with contexts along both sides. */
function square(x, y) {
  const axis = (text) => ({ title: { text }, type: "category", showgrid: false, constrain: "domain" });
  return { xaxis: axis(x), yaxis: { ...axis(y), autorange: "reversed", scaleanchor: "x" } };
}

/** Which labels the members of each context hold: the share of each. */
function labelShares(run, m, ui) {
  const groups = m.contexts.groups,
    classes = groups[0].labels.length;
  const z = groups.map((g) => {
    const sum = g.labels.reduce((a, b) => a + b, 0);
    return g.labels.map((v) => v / Math.max(sum, 1));
  });
  const x = [...Array(classes).keys()].map(String),
    y = groups.map((g) => String(g.context));
  const trace = matrix(
    z,
    x,
    y,
    ui,
    (v) => (v ? (100 * v).toFixed(0) : ""),
    "context %{y}, label %{x}: %{z:.1%}<extra></extra>",
  );
  return {
    data: [trace],
    height: 130 + 30 * Math.min(y.length, 14),
    layout: {
      xaxis: { title: { text: "label (% of training samples)" }, type: "category", showgrid: false },
      yaxis: { title: { text: "context" }, type: "category", autorange: "reversed", showgrid: false, automargin: true },
    },
  };
}

/** Distances ‖ω_j − ω_k‖ between the contexts' models. */
function modelDistances(run, m, ui) {
  const { distance, context } = m.contexts.models,
    names = context.map(String);
  const trace = matrix(
    distance,
    names,
    names,
    ui,
    (v) => v.toPrecision(2),
    "contexts %{y} and %{x}: %{z:.3g}<extra></extra>",
  );
  return {
    data: [trace],
    layout: square("context", "context"),
  };
}

/** Personal models and the contexts' models on their first two principal components. */
function projection(run, m, ui) {
  const { place, client, context, share } = m.contexts.models,
    data = [],
    table = expand(m.contexts);
  const at = new Map(m.contexts.clients.map((i, row) => [i, table[row][table[row].length - 1]]));
  for (const c of context) {
    const rows = client.map((i, row) => [i, row]).filter(([i]) => at.get(i) === c);
    data.push({
      type: "scatter",
      mode: "markers",
      name: "context " + c,
      x: rows.map(([, r]) => place[r][0]),
      y: rows.map(([, r]) => place[r][1]),
      text: rows.map(([i]) => nameOf(run, i) + (run.truth ? `, truly in ${run.truth[i]}` : "")),
      hovertemplate: `%{text}<extra>context ${c}</extra>`,
      marker: {
        size: 9,
        color: contextColour(c),
        symbol: rows.map(([i]) => (run.truth ? SYMBOLS[run.truth[i] % SYMBOLS.length] : "circle")),
        line: { width: 0.5, color: ui.ground },
      },
    });
  }
  const own = place.slice(client.length);
  if (own.length)
    data.push({
      type: "scatter",
      mode: "markers",
      name: "contexts' models",
      x: own.map((p) => p[0]),
      y: own.map((p) => p[1]),
      text: context.map((c) => "model of context " + c),
      hovertemplate: "%{text}<extra></extra>",
      marker: { symbol: "star-open", size: 18, color: ui.text, line: { width: 1.5 } },
    });
  const title = (i) => ({
    title: { text: `component ${i + 1} (${percent(share[i], 0)} of variance)` },
    zeroline: false,
  });
  return {
    data,
    say: run.truth ? "Stars: the contexts' models. Shapes: the true contexts." : "Stars: the contexts' models.",
    layout: { showlegend: context.length <= 10, xaxis: title(0), yaxis: title(1) },
  };
}

/** Q^t: of each new context's members, the share that comes from each old one. */
function transition(run, m, ui, e) {
  const table = expand(m.contexts),
    most = Math.max(...table.map((row) => Math.max(...row))) + 1,
    names = [...Array(most).keys()].map(String);
  const z = names.map(() => names.map(() => 0)),
    sizes = names.map(() => 0);
  for (const row of table) {
    z[row[e - 1]][row[e]] += 1;
    sizes[row[e]] += 1;
  }
  const q = z.map((row) => row.map((v, j) => (sizes[j] ? v / sizes[j] : null)));
  const trace = matrix(
    q,
    names,
    names,
    ui,
    (v) => (v ? v.toFixed(2) : ""),
    "%{z:.1%} of new context %{x} comes from %{y}<extra></extra>",
  );
  return {
    data: [{ ...trace, zmax: 1 }],
    layout: square("context after", "context before"),
    say: `Rounds ${m.contexts.rounds[e - 1]} to ${m.contexts.rounds[e]}: ${m.contexts.moved[e]} of ${run.data.clients} clients moved.`,
  };
}
