// The map and the curves of the training.

let plotting = null;
function withPlotly() {
  plotting ??= (async () => {
    const stream = new Blob([bytesIn("plotly")]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = make("script", { textContent: await new Response(stream).text() });
    script.nonce = document.querySelector("script[nonce]").nonce;
    document.head.append(script);
    return window.Plotly;
  })();
  return plotting;
}

// Plots shrink to the width of the paper; on the screen, their pixels are those of the window.
const drawn = () => document.querySelectorAll(".main-svg");
addEventListener("beforeprint", () => {
  for (const svg of drawn()) svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
});
addEventListener("afterprint", () => { for (const svg of drawn()) svg.removeAttribute("viewBox"); });

const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const dark = matchMedia("(prefers-color-scheme: dark)");
// Hues far from each other, at three levels of lightness: neighbours in number differ.
function colour(k) {
  if (k === data.noise) return styleOf("soft");
  const light = (dark.matches ? [68, 54, 80] : [45, 60, 32])[k % 3];
  return `hsl(${(k * 137.508 + 215) % 360} ${60 + 15 * (k % 2)}% ${light}%)`;
}
const layout = (extra) => ({
  paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
  font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: styleOf("soft") }, ...extra,
});
const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: true, doubleClick: "reset" };

let mode = "lasso";
async function showMap() {
  const Plotly = await withPlotly();
  const box = $("map-plot"), { rows, places } = data.map;
  const labels = rows.map(clusterOf);
  const axis = { visible: false, zeroline: false };
  const marker = { color: labels.map(colour), size: rows.length > 1500 ? 6 : 8, opacity: 0.8 };
  await Plotly.react(box, [{
    type: "scatter", mode: "markers", x: places.map((p) => p[0]), y: places.map((p) => p[1]), hoverinfo: "none", marker,
    selected: { marker: { opacity: 1 } }, unselected: { marker: { opacity: 0.15 } },
  }], layout({
    margin: { l: 8, r: 8, t: 8, b: 8 }, xaxis: { ...axis, range: mapRange(0) }, yaxis: { ...axis, range: mapRange(1), scaleanchor: "x" },
    dragmode: mode, hovermode: "closest", uirevision: "kept", annotations: captions(rows, places, labels),
  }), CONFIG);
  const chosen = $("map-cluster").value;
  $("map-cluster").replaceChildren(option("", "all"), ...optionsOf(living()));
  $("map-cluster").value = chosen;
  if (box.wired) return;
  box.wired = true;
  box.on("plotly_click", ({ points: [point] }) => { location.hash = `#cluster/${clusterOf(rows[point.pointIndex])}`; });
  box.on("plotly_hover", ({ points: [point], event }) => hover(rows[point.pointIndex], event));
  box.on("plotly_unhover", () => { $("hover").hidden = true; });
  const selected = (event) => {
    $("map-cluster").value = "";
    select(event?.points?.map((point) => rows[point.pointIndex]) ?? []);
  };
  box.on("plotly_selected", selected);
  box.on("plotly_deselect", selected);
}
// The whole map, with a margin in which the captions at its edges have room.
const mapRange = (axis) => [-60, Math.max(0, ...data.map.places.map((p) => p[axis])) + 60];
const SPIRAL = Array.from({ length: 1000 }, (_, j) => [Math.cos(2.4 * j), Math.sin(2.4 * j)].map((x) => 0.5 * Math.sqrt(j) * x));
const MOST_CAPTIONS = 300; // more take long to draw, and have no room
// The numbers of large clusters, each at the midmost of its points, or as near as no other is.
function captions(rows, places, labels) {
  const { clientWidth: width, clientHeight: height } = $("map-plot");
  const [across, up] = [mapRange(0), mapRange(1)], middleOf = (range) => (range[0] + range[1]) / 2;
  const scale = Math.min((width - 16) / (across[1] - across[0]), (height - 16) / (up[1] - up[0]));
  const named = living().sort((a, b) => members[b].length - members[a].length).slice(0, MOST_CAPTIONS);
  const size = Math.max(8, Math.min(14, width / 5 / Math.sqrt(named.length)));
  const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
  const taken = [];
  return named.flatMap((k) => {
    const own = places.filter((_, j) => labels[j] === k);
    if (!own.length) return [];
    const short = inShort(visible(customName.get(k) ?? (k === data.noise ? "Noise" : String(k))), 24);
    const middle = [0, 1].map((axis) => median(own.map((p) => p[axis]))), far = (p) => Math.hypot(p[0] - middle[0], p[1] - middle[1]);
    const [x, y] = own.reduce((a, b) => (far(b) < far(a) ? b : a)); // a point of its own, as the middle may be another's
    const [left, top] = [width / 2 + scale * (x - middleOf(across)), height / 2 - scale * (y - middleOf(up))];
    const half = (0.36 * Array.from(short).length + 0.2) * size;
    const isFree = ([dx, dy]) => {
      const [u, v] = [left + size * dx, top + size * dy];
      return Math.abs(u - width / 2) < width / 2 - half && Math.abs(v - height / 2) < height / 2 - size
        && taken.every(([other, at, wide]) => Math.abs(u - other) > half + wide || Math.abs(v - at) > 1.2 * size);
    };
    const [dx, dy] = SPIRAL.find(isFree) ?? [0, 0];
    taken.push([left + size * dx, top + size * dy, half]);
    return [{ x, y, ax: size * dx, ay: size * dy, showarrow: true, arrowhead: 0, arrowwidth: 1, arrowcolor: styleOf("text"),
      text: short.replaceAll("&", "&amp;").replaceAll("<", "&lt;"), font: { size, color: styleOf("text"), weight: 700 }, borderpad: 0, captureevents: false }];
  });
}
function hover(i, event) {
  $("hover").replaceChildren(...[picture(i), make("b", {}, nameOf(i)), `${clusterName(clusterOf(i))} · ${sureOf(i)}`].filter(Boolean));
  $("hover").hidden = false;
  $("hover").style.left = `${Math.min(event.clientX + 14, innerWidth - 150)}px`;
  $("hover").style.top = `${Math.min(event.clientY + 14, innerHeight - $("hover").offsetHeight - 8)}px`;
}
let selection = [];
function select(rows) {
  selection = rows;
  $("selection-tools").hidden = !rows.length;
  $("selection-note").textContent = rows.length ? `${count(rows.length)} selected` : "Draw around points, or choose a cluster.";
  fillGallery($("selected"), rows);
  offerMove($("selection-move"), rows);
}
$("selection-save").onclick = () => download("selection.csv", selection);
// The points of a cluster can be selected without a mouse.
$("map-cluster").onchange = () => {
  const k = $("map-cluster").value, { rows } = data.map;
  const points = k === "" ? null : [...rows.keys()].filter((j) => clusterOf(rows[j]) === Number(k));
  window.Plotly.update($("map-plot"), { selectedpoints: [points] }, { selections: [] }); // which deselects
  $("map-cluster").value = k;
  select((points ?? []).map((j) => rows[j]));
};
$("selection-clear").onclick = () => {
  $("map-cluster").value = "";
  $("map-cluster").onchange();
  refocus();
};
for (const button of $("map-modes").children) {
  button.onclick = () => {
    mode = button.dataset.mode;
    for (const other of $("map-modes").children) other.setAttribute("aria-pressed", other === button);
    window.Plotly?.relayout($("map-plot"), { dragmode: mode });
  };
}
$("map-reset").onclick = () => window.Plotly?.relayout($("map-plot"), { "xaxis.range": mapRange(0), "yaxis.range": mapRange(1) });

const CURVES = {
  elbo: "ELBO, in nats",
  changed: `Share of ${NOUN} that changed their cluster`,
  confidence: "Mean probability of the likeliest cluster",
};
async function showTraining() {
  const stages = [...new Set(data.history.map((row) => row.stage))];
  $("stages-note").textContent = stages.length > 1 ? " The first stage, dotted, learns features without clusters; its ELBO has another scale."
    + " EM starts from clusters of the features, and keeps them for some epochs, during which the ELBO is lower." : "";
  const Plotly = await withPlotly();
  $("curves").replaceChildren();
  for (const [key, text] of Object.entries(CURVES)) {
    const isShown = (row) => key in row && (key === "elbo" || row.stage !== "moco"); // MoCo has no clusters
    const points = data.history.map((row, n) => ({ ...row, epoch: n + 1 })).filter(isShown);
    if (!points.length) continue;
    const traces = stages.map((stage) => {
      const own = points.filter((row) => row.stage === stage);
      return { type: "scatter", mode: own.length > 2 ? "lines" : "lines+markers", x: own.map((row) => row.epoch), y: own.map((row) => row[key]),
        line: { color: styleOf("accent"), width: 2, dash: stage === "moco" ? "dot" : "solid" }, marker: { color: styleOf("accent"), size: 7 },
        hovertemplate: `epoch %{x}: %{y:${key === "elbo" ? ".3f" : ".1%"}}<extra></extra>` };
    });
    const box = make("div", { className: "plot", aria: { role: "img", label: `${text}, by epoch` } });
    $("curves").append(make("div", {}, make("h2", {}, text), box));
    const axis = { gridcolor: styleOf("line"), zeroline: false, automargin: true };
    const few = data.history.length <= 10 ? { dtick: 1 } : {};
    await Plotly.newPlot(box, traces, layout({
      margin: { l: 56, r: 20, t: 16, b: 48 }, dragmode: false,
      xaxis: { ...axis, ...few, range: [0.5, data.history.length + 0.5], title: { text: "Epoch", font: { size: 13 }, standoff: 8 } },
      yaxis: { ...axis, ...(key === "elbo" ? {} : { tickformat: "~%", rangemode: "tozero" }) },
    }), { ...CONFIG, scrollZoom: false });
  }
}
