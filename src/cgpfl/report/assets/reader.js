"use strict";
// What the reader does: chooses, switches colours, prints; and live updates. The last script: it starts the page.

for (const name of ["x", "y"])
  $(name).onchange = () => {
    ui[name] = $(name).value;
    refresh();
  };

function recolour(all = false) {
  look();
  filter();
  refresh(all);
}
$("theme").onclick = () => {
  document.documentElement.dataset.theme = ui.dark ? "light" : "dark";
  recolour();
};
addEventListener("resize", overflowing);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => recolour());
const shut = new Set();
addEventListener("beforeprint", () => {
  const before = document.documentElement.dataset.theme;
  for (const d of document.querySelectorAll("details:not([open])")) {
    d.open = true;
    shut.add(d);
  }
  document.documentElement.dataset.theme = "light";
  ui.paper = 680; // the screen's width is not the paper's
  recolour(true);
  addEventListener(
    "afterprint",
    () => {
      for (const d of shut) d.open = false;
      shut.clear();
      ui.paper = undefined;
      if (before) document.documentElement.dataset.theme = before;
      else delete document.documentElement.dataset.theme;
      recolour();
    },
    { once: true },
  );
});

/** Say what is wrong, or that nothing is any more. */
function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}

// Live

/** Listen for news; the browser reconnects by itself, and what was missed is fetched then. */
function listen() {
  const badge = $("live"),
    state = (text, css) => {
      badge.textContent = text;
      badge.className = "badge " + css;
      badge.hidden = false;
    };
  state("connecting", "");
  const source = new EventSource("events");
  let wanted = 0,
    busy = false;
  const fetchNews = async () => {
    wanted += 1;
    if (busy) return;
    busy = true;
    try {
      for (let got = 0; got !== wanted;) {
        got = wanted;
        const response = await fetch("data");
        trouble(response.ok ? "" : await response.text());
        if (response.ok) show(await response.json());
      }
    } catch {
      /* the connection is gone: it comes back with an event */
    } finally {
      busy = false;
    }
  };
  source.onmessage = () => {
    state("live", "running");
    fetchNews();
  };
  source.onerror = () => state("reconnecting", "lost");
}

function show(news) {
  page = news.page;
  for (const name of ["head", "table", "settings"]) {
    const open = [...$(name).querySelectorAll("details")].map((d) => d.open);
    if ($(name).innerHTML !== news[name]) $(name).innerHTML = news[name];
    $(name)
      .querySelectorAll("details")
      .forEach((d, i) => {
        d.open = open[i] ?? d.open;
      });
  }
  look();
  filter();
  build();
  overflowing();
}

async function start() {
  look();
  filter();
  build();
  overflowing();
  try {
    const text = atob($("plotly").textContent.trim()),
      bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i); // thirty times as fast as Uint8Array.from
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    document.head.append(element("script", { textContent: await new Response(stream).text() }));
  } catch (error) {
    trouble(`The charts need a newer browser (${error.message}); the table and the configuration do not.`);
    return;
  }
  refresh();
  document.documentElement.dataset.ready = "yes";
  if (page.live) listen();
}
start();
