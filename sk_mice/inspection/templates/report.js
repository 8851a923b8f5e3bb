"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const N = data.labels.length, K = data.n_clusters, thumbs = data.thumbs;
const NOUN = data.noun, ONE = NOUN === "images" ? "image" : "sample";
const PART = 240; // thumbnails that are added at a time: full rows of 12, 15 or 16, and of 1 to 6
const percent = (x) => `${Math.round(100 * x)}%`;
const count = (n, one = ONE) => `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;
const bytesIn = (id) => Uint8Array.from(atob($(id).textContent), (c) => c.charCodeAt(0));
// Values and how often each is there, the most frequent first.
function tally(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

// Text is set as text and never read as markup.
function make(tag, properties = {}, ...children) {
  const { dataset, style, aria, ...rest } = properties;
  const node = Object.assign(document.createElement(tag), rest);
  Object.assign(node.dataset, dataset);
  for (const [name, value] of Object.entries(style ?? {})) node.style.setProperty(name, value);
  for (const [name, value] of Object.entries(aria ?? {})) node.setAttribute(name === "role" ? name : `aria-${name}`, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

// ------------------------------------------------------------------- what is shown

const rank = new Int32Array(N);
data.order.forEach((i, place) => { rank[i] = place; });
const shownAt = new Map(data.shown.map((i, place) => [i, place]));
const sheetOf = new Int32Array(N).fill(-1), cellOf = new Int32Array(N);
(thumbs?.members ?? []).forEach((rows, sheet) => rows.forEach((i, cell) => {
  sheetOf[i] = sheet;
  cellOf[i] = cell;
}));

// Characters that cannot be seen, and bytes that are not UTF-8, are spelled out.
const rawName = (i) => (data.names ? data.names[i] : String(i));
function visible(text) {
  const controls = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
  return text.toWellFormed() === text && !controls.test(text) ? text : Array.from(text, (c) => {
    const code = c.codePointAt(0);
    if (code >= 0xdc80 && code <= 0xdcff) return "\\x" + (code - 0xdc00).toString(16);
    if (code >= 0xd800 && code <= 0xdfff) return "\\u" + code.toString(16);
    if (c === "\n") return "\\n";
    return c.match(controls) ? "\\u" + code.toString(16).padStart(4, "0") : c;
  }).join("");
}
const nameOf = (i) => (data.names ? visible(data.names[i]) : `${ONE} ${i}`);
// The end of a path, which tells more than its beginning where there is little room.
const fileOf = (i) => (data.names ? visible(data.names[i].replace(/^.*[/\\](?=.)/s, "")) : nameOf(i));
const classOf = (y) => visible(data.classes[y]);

const urls = new Map();
function sheetUrl(sheet) {
  if (!urls.has(sheet)) {
    urls.set(sheet, URL.createObjectURL(new Blob([bytesIn(`sheet-${sheet}`)], { type: thumbs.type })));
  }
  return urls.get(sheet);
}

// A tall picture is narrower than its place, and no more than twice as high as that is wide.
const shape = thumbs && { "aspect-ratio": `${thumbs.width} / ${thumbs.height}`, width: `${Math.min(100, (200 * thumbs.width) / thumbs.height)}%` };
function picture(i) {
  if (sheetOf[i] < 0) return null;
  const { columns, width, height, members } = thumbs;
  const rows = Math.ceil(members[sheetOf[i]].length / columns);
  const x = cellOf[i] % columns, y = Math.floor(cellOf[i] / columns);
  const at = (place, n) => (n > 1 ? `${(100 * place) / (n - 1)}%` : "0");
  return make("span", {
    className: Math.max(width, height) < 48 ? "pic pixels" : "pic",
    aria: { role: "img", label: nameOf(i) },
    style: {
      ...shape,
      "background-image": `url(${sheetUrl(sheetOf[i])})`,
      "background-size": `${columns * 100}% ${rows * 100}%`,
      "background-position": `${at(x, columns)} ${at(y, rows)}`,
    },
  });
}

// ------------------------------------------------------- clusters, and their changes

// {merge: k, into: m}, {move: samples, into: m}, {rename: k, name}, or a table: {open: edits, file, n}
const edits = [];
// Those since the table that was opened last, which replaces what was before.
function steps() {
  const last = edits.findLastIndex((edit) => "open" in edit);
  return last < 0 ? edits : [...edits[last].open, ...edits.slice(last + 1)];
}
let labels, parent, customName, members, mean, confidence, second, secondShare;

function apply() {
  labels = [...data.labels];
  parent = Array.from({ length: K }, (_, k) => k);
  customName = new Map();
  for (const edit of steps()) {
    if ("move" in edit) {
      if (edit.into === parent.length) parent.push(edit.into); // a new cluster
      for (const i of edit.move) labels[i] = edit.into;
    } else if ("merge" in edit) {
      parent = parent.map((k) => (k === edit.merge ? edit.into : k));
      const name = customName.get(edit.merge);
      if (name && !customName.has(edit.into)) customName.set(edit.into, name);
    } else if (edit.name) customName.set(edit.rename, edit.name);
    else customName.delete(edit.rename);
  }
  [confidence, second, secondShare] = [[...data.confidence], [...data.second], [...data.second_share]];
  members = parent.map(() => []);
  for (const i of data.order) members[clusterOf(i)].push(i);
  if (isRegrouped()) {
    for (let i = 0; i < N; i++) recount(i);
    for (const rows of members) rows.sort((a, b) => confidence[b] - confidence[a] || rank[a] - rank[b]);
  }
  mean = members.map((rows) => rows.reduce((sum, i) => sum + confidence[i], 0) / Math.max(rows.length, 1));
}
const isRegrouped = () => steps().some((edit) => "into" in edit);
// Views or neighbours in clusters that were merged are in one cluster now.
function recount(i) {
  if (isMoved(i)) { // the reader is sure
    [confidence[i], second[i], secondShare[i]] = [1, -1, 0];
    return;
  }
  const own = clusterOf(i), sums = new Map();
  for (const [k, share] of data.others[i] ?? []) sums.set(parent[k], (sums.get(parent[k]) ?? 0) + share);
  if (data.measure === "agreement") confidence[i] = rounded(Math.min(1, confidence[i] + (sums.get(own) ?? 0)));
  sums.delete(own);
  const before = parent[second[i]] ?? own; // -1 is none
  const [most, share] = [...sums].reduce((a, b) => (b[1] > a[1] ? b : a), [before, sums.get(before) ?? 0]);
  [second[i], secondShare[i]] = [most === own ? -1 : most, rounded(share)];
}
const rounded = (share) => Math.round(1000 * share) / 1000;
const clusterOf = (i) => parent[labels[i]];
const isMoved = (i) => clusterOf(i) !== parent[data.labels[i]];
const marginOf = (i) => confidence[i] - secondShare[i];
const clusterName = (k) => customName.get(k) ?? `Cluster ${k}`;
const living = () => parent.flatMap((p, k) => (p === k ? [k] : []));
function verdict(k) {
  if (!members[k].length) return "empty";
  if (data.of_neighbors && members[k].length === 1) return "single";
  if (mean[k] >= data.limits.steady) return "steady";
  return mean[k] < data.limits.unsure ? "unsure" : "mixed";
}
const SIGN = { steady: "●", mixed: "◐", unsure: "○", single: "○", empty: "–" };
const inWords = (kind) => `${SIGN[kind]} ${kind === "single" ? `one ${ONE}` : kind}`;
const isSingle = (i) => verdict(clusterOf(i)) === "single"; // no neighbours were asked
const sureOf = (i) => (isMoved(i) ? "by hand" : isSingle(i) ? "alone" : percent(confidence[i]));
const sureness = (k) => (["empty", "single"].includes(verdict(k)) ? "" : ` · ${percent(mean[k])} ${data.measure}`);

function majority(k) {
  if (!data.y) return null;
  const known = members[k].map((i) => data.y[i]).filter((y) => y >= 0); // -1 is a missing class
  if (!known.length) return null;
  const [[y, n]] = tally(known);
  return { y, share: n / known.length };
}

function changed() {
  save();
  route();
  if ($("detail").open) openDetail(opened.i, opened.rows);
  select(selection);
  refocus();
}
function save() {
  apply();
  keep();
  showEdits();
}

// Changes survive a reload, where the browser lets a file keep something.
const KEY = `sk_mice:${data.key}`;
function keep() {
  try { localStorage.setItem(KEY, JSON.stringify(edits)); } catch { /* not kept */ }
}
function recall() {
  try { edits.splice(0, edits.length, ...JSON.parse(localStorage.getItem(KEY) ?? "[]")); } catch { /* none */ }
}
addEventListener("storage", (event) => { // another tab with these clusters has changed them
  if (event.key !== KEY) return;
  recall();
  changed();
});

// Why `sk-mice sort` refuses the name of a cluster, on all systems.
const noFolder = new RegExp(data.no_folder, "i");
function refusal(k) {
  const name = clusterName(k), lower = name.toLowerCase();
  if (noFolder.test(name)) return " (sk-mice sort refuses it: a folder cannot have this name)";
  const other = living().map(clusterName).find((one) => one !== name && one.toLowerCase() === lower);
  return other ? ` (sk-mice sort refuses it beside ${other})` : "";
}
function showEdits() {
  const edit = edits.at(-1);
  $("edits").hidden = !edit;
  $("edits-note").textContent = !edit ? "" : "open" in edit ? `Opened: ${edit.file}, with ${count(edit.n)} of this page`
    : "move" in edit ? `Moved: ${count(edit.move.length)} to ${clusterName(edit.into)}`
    : "merge" in edit ? `Merged: Cluster ${edit.merge} into ${clusterName(edit.into)}`
    : `Renamed: Cluster ${edit.rename} to ${clusterName(edit.rename)}${refusal(edit.rename)}`;
  for (const node of document.querySelectorAll("[data-name]")) {
    node.textContent = clusterName(parent[Number(node.dataset.name)]);
  }
  const n = living().length;
  if (!data.titled) document.title = $("title").textContent = `${count(N)} in ${count(n, "cluster")}`;
  $("n-clusters").textContent = n;
  const known = confidence.filter((_, i) => !isSingle(i));
  $("mean").textContent = known.length ? percent(known.reduce((sum, x) => sum + x, 0) / known.length) : "none";
  showDoubts();
}

// What there is to say of a cluster, or of a pair, in each kind of doubt; null if nothing.
const even = () => N / living().length;
const size = (k) => members[k].length;
const DOUBTS = {
  empty: (k) => (size(k) ? null : ""),
  small: (k) => (size(k) && size(k) < data.limits.small * even() ? count(size(k)) : null),
  large: (k) => (size(k) > data.limits.large * even() ? count(size(k)) : null),
  unsure: (k) => (verdict(k) === "unsure" ? percent(mean[k]) : null),
  classes: (k) => (majority(k)?.share < data.limits.pure ? percent(majority(k).share) : null),
  pairs: (a, b) => {
    const lies = (from, to) => members[from].filter((i) => second[i] === to && secondShare[i] >= data.limits.shared).length;
    const n = a === b ? 0 : lies(a, b) + lies(b, a), smaller = Math.min(size(a), size(b));
    return smaller && n >= Math.max(2, data.limits.members * smaller) ? count(n) : null;
  },
};
// After a merge or a move, chips are hidden whose doubt is over, or that another chip repeats.
function showDoubts() {
  const told = new Set();
  for (const chip of document.querySelectorAll("[data-kind]")) {
    const { kind, cluster, other } = chip.dataset, detail = chip.lastElementChild;
    const ends = [cluster, other].filter((k) => k !== undefined).map((k) => parent[Number(k)]);
    const key = [kind, ...[...ends].sort()].join();
    const text = !isRegrouped() ? detail.dataset.detail : told.has(key) ? null : DOUBTS[kind](...ends);
    chip.parentElement.hidden = text === null;
    if (text !== null) told.add(key);
    detail.textContent = text ?? "";
    chip.title = chip.textContent; // where it is cut
  }
  for (const more of document.querySelectorAll(".doubt details")) {
    const n = more.querySelectorAll("li:not([hidden])").length;
    more.hidden = !n;
    more.querySelector("summary").textContent = `${n} more`;
  }
  const doubts = [...document.querySelectorAll(".doubt")];
  for (const doubt of doubts) doubt.hidden = !doubt.querySelector("li:not([hidden])");
  $("no-doubts").hidden = doubts.some((doubt) => !doubt.hidden);
}
$("undo").onclick = () => { edits.pop(); changed(); };

// -------------------------------------------------------------------------- CSV

// Bytes of names that are not UTF-8 come back as they were.
function bytesOf(text) {
  const encoder = new TextEncoder();
  const parts = text.split(/((?<![\ud800-\udbff])[\udc80-\udcff])/);
  return parts.map((part, n) => (n % 2 ? Uint8Array.of(part.charCodeAt(0) - 0xdc00) : encoder.encode(part)));
}
const quoted = (text) => (/[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
function csv(rows) {
  const lines = [[data.names ? "file" : "sample", "cluster", "name", "confidence", "original_cluster"]];
  for (const i of rows) {
    const k = clusterOf(i);
    lines.push([rawName(i), k, clusterName(k), data.of_neighbors && N === 1 ? "" : confidence[i], data.labels[i]]);
  }
  return bytesOf(lines.map((line) => line.map((cell) => quoted(String(cell))).join(",") + "\r\n").join(""));
}
function download(name, rows) {
  const url = URL.createObjectURL(new Blob(csv(rows), { type: "text/csv" }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
for (const id of ["download", "download-edited"]) $(id).onclick = () => download("clusters.csv", data.labels.keys());

// A table that was downloaded is opened again: here, in another browser, or in a page of more images.
$("open").onclick = () => $("table").click();
$("table").onchange = async () => {
  const [file] = $("table").files;
  $("table").value = "";
  try {
    edits.push({ ...editsOf(cellsOf(await bytesOfFile(file))), file: file.name });
  } catch (error) {
    alert(`${file.name} ${error.message}`);
    return;
  }
  changed();
};
async function bytesOfFile(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const kind = { "255,254": "utf-16le", "254,255": "utf-16be" }[bytes.slice(0, 2)]; // by > in PowerShell
  return kind ? new TextEncoder().encode(new TextDecoder(kind).decode(bytes)) : bytes;
}
// Bytes are compared, as a character each, since names need not be UTF-8.
const asCharacters = (bytes) => Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
const asText = (cell) => new TextDecoder().decode(Uint8Array.from(cell, (c) => c.charCodeAt(0)));
function cellsOf(bytes) {
  const text = asCharacters(bytes).replace(/^\xef\xbb\xbf/, "");
  const between = /^[^,\n]*;[^,\n]*\n/.test(text) ? ";" : ","; // as some spreadsheets write
  const cell = new RegExp(`("(?:[^"]|"")*"|[^${between}\\r\\n]*)(${between}|\\r?\\n|$)`, "gy");
  const rows = [[]];
  let done = 0;
  for (const [all, value, end] of text.matchAll(cell)) {
    if (!all) break;
    done += all.length;
    rows.at(-1).push(value.startsWith('"') ? value.slice(1, -1).replaceAll('""', '"') : value);
    if (end.includes("\n")) rows.push([]);
  }
  if (done < text.length) throw new Error(`cannot be read as CSV after its line ${rows.length}`);
  return rows.filter((row) => row.some(Boolean));
}
// The merges, moves and names that make the clusters of a table from those of the model.
function editsOf([header = [], ...rows]) {
  const columns = [data.names ? "file" : "sample", "cluster", "name", "original_cluster"];
  const [atFile, atCluster, atName, atOriginal] = columns.map((name) => header.indexOf(name));
  if (atFile < 0 || atCluster < 0) throw new Error(`has no column ${data.names ? "file" : "sample"}, or no column cluster`);
  const found = new Map();
  for (const row of rows) {
    const file = row[atFile] ?? "";
    if (found.has(file)) throw new Error(`has ${visible(asText(file))} twice`);
    found.set(file, row);
  }
  const wanted = data.labels.map((_, i) => found.get(asCharacters(Uint8Array.from(bytesOf(rawName(i)).flatMap((part) => [...part])))));
  const known = [...wanted.keys()].filter((i) => wanted[i]), names = new Map();
  if (!known.length) throw new Error(`has none of the ${NOUN} of this page`);
  const same = known.filter((i) => atOriginal < 0 || Number(wanted[i][atOriginal]) === data.labels[i]);
  if (same.length < data.limits.same * known.length) throw new Error("is of another fit, whose clusters have other numbers");
  for (const i of known) {
    const k = wanted[i][atCluster], name = asText(wanted[i][atName] ?? "");
    if (!/^\d{1,9}$/.test(k)) throw new Error(`has no number of a cluster for ${nameOf(i)}`);
    if ((names.get(Number(k)) ?? name) !== name) throw new Error(`has two names of cluster ${k}: ${names.get(Number(k))} and ${name}`);
    names.set(Number(k), name);
  }
  // Clusters that were made by hand are numbered anew, as some may be gone.
  const made = [...names.keys()].filter((k) => k >= K).sort((a, b) => a - b);
  const numberOf = (k) => (k < K ? k : K + made.indexOf(k));
  const goal = wanted.map((row) => (row ? numberOf(Number(row[atCluster])) : null));
  const own = Array.from({ length: K }, () => []), isLeft = new Set(goal), moves = new Map();
  for (const [i, k] of data.labels.entries()) own[k].push(i);
  const into = own.map((rows, k) => { // one in which nothing is left was merged
    const goals = rows.map((i) => goal[i]).filter((m) => m !== null);
    return isLeft.has(k) || !goals.length || 2 * goals.length < rows.length ? k : tally(goals)[0][0];
  });
  const move = (i) => moves.set(goal[i], moves.get(goal[i]) ?? []).get(goal[i]).push(i);
  for (const i of known) if (goal[i] !== into[data.labels[i]]) move(i);
  for (const k of made) { // each begins with a move
    if (!moves.has(numberOf(k))) move(known.find((i) => goal[i] === numberOf(k)));
  }
  const merges = into.flatMap((m, k) => (m === k ? [] : [{ merge: k, into: m }]));
  const open = [...moves].sort((a, b) => a[0] - b[0]).map(([m, rows]) => ({ move: rows, into: m })).concat(merges);
  for (const [k, name] of names) if (name && name !== `Cluster ${k}`) open.push({ rename: numberOf(k), name });
  return { open, n: known.length };
}

// --------------------------------------------------------------------- galleries

// A list of samples that grows while the reader scrolls; arrows move in it.
function fillGallery(box, rows, { caption = () => "", mark = () => false } = {}) {
  box.watcher?.disconnect();
  const least = (box.address === location.hash && box.querySelectorAll(".thumb").length) || 1; // a change keeps its place
  box.address = location.hash;
  box.replaceChildren();
  box.rows = rows;
  box.classList.toggle("list", !thumbs);
  let done = 0;
  const end = make("div");
  const add = () => {
    const part = make("div", { className: "part" });
    for (const i of rows.slice(done, done + PART)) part.append(thumb(i, caption(i), mark(i)));
    if (box === $("gallery")) part.childNodes.forEach(showPicked);
    done += PART;
    if (box.querySelector(".thumb") === null) part.querySelector(".thumb")?.setAttribute("tabindex", "0");
    end.before(part);
    if (done >= rows.length) box.watcher.disconnect();
  };
  box.append(end);
  box.watcher = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) {
      add();
      box.watcher.unobserve(end); // looks again, should the end still be in sight
      if (done < rows.length) box.watcher.observe(end);
    }
  }, { rootMargin: "600px" });
  while (done < Math.min(least, rows.length)) add();
  if (done < rows.length) box.watcher.observe(end);
}

const titleOf = (i) => `${nameOf(i)}\n${sureOf(i)} in ${clusterName(clusterOf(i))}${data.y?.[i] >= 0 ? `\n${classOf(data.y[i])}` : ""}`;
function thumb(i, caption, marked) {
  const inside = picture(i) ?? (thumbs ? make("span", { className: "pic", style: shape }) : null);
  if (sheetOf[i] < 0) caption = fileOf(i); // there is no picture to know it by
  const node = make("button", {
    type: "button", className: marked ? "thumb other" : "thumb", tabIndex: -1, dataset: { i },
    title: titleOf(i),
  }, inside ?? nameOf(i));
  const isFile = caption === fileOf(i); // of which the end is shown
  if (caption && inside) node.append(make("small", { className: isFile ? "file" : "" }, isFile ? make("bdi", {}, caption) : caption));
  return node;
}

for (const chip of document.querySelectorAll("[data-pair]")) {
  const pair = chip.dataset.pair.split(" ").map(Number);
  const named = fileOf(pair[0]) === fileOf(pair[1]) ? nameOf : fileOf;
  chip.textContent = pair.map(named).join(", ");
  chip.title = pair.map(nameOf).join("\n");
  chip.onclick = () => openDetail(pair[0], pair);
}
document.addEventListener("click", (event) => {
  const node = event.target.closest?.(".thumb");
  if (!node) return;
  const i = Number(node.dataset.i), box = node.closest(".gallery");
  if (picking && box === $("gallery")) pick(i, event.shiftKey);
  else openDetail(i, box.rows);
});
document.addEventListener("keydown", (event) => {
  const field = event.target.closest?.("input, select");
  if (event.key === "/" && !field && !$("detail").open) {
    event.preventDefault();
    $("search").focus();
  }
  const node = event.target.closest?.(".thumb");
  if (node && !event.altKey && !event.ctrlKey && !event.metaKey) moveFocus(event, node);
});
function moveFocus(event, node) {
  const all = [...node.closest(".gallery").querySelectorAll(".thumb")];
  const columns = getComputedStyle(node.parentElement).gridTemplateColumns.split(" ").length;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -Infinity, End: Infinity }[event.key];
  if (!step) return;
  event.preventDefault();
  event.stopPropagation();
  focusThumb(all[Math.min(all.length - 1, Math.max(0, all.indexOf(node) + step))]);
}
function focusThumb(node) {
  for (const other of node.closest(".gallery").querySelectorAll(".thumb[tabindex='0']")) other.tabIndex = -1;
  node.tabIndex = 0;
  node.focus();
}

// -------------------------------------------------------------- the list of clusters

function showClusters() {
  const alive = living(), byMean = (a, b) => mean[b] - mean[a];
  const order = { number: (a, b) => a - b, size: (a, b) => size(b) - size(a), mean: byMean }[$("sort").value];
  const sorted = [...alive].sort((a, b) => order(a, b) || a - b);
  const kinds = Object.keys(SIGN).map((kind) => [kind, alive.filter((k) => verdict(k) === kind).length]).filter(([, n]) => n);
  const adjective = (kind) => (kind === "single" ? `of one ${ONE}` : kind);
  const words = kinds.map(([kind, n]) => `${n} ${adjective(kind)}`);
  const everyOne = ["", "The cluster is", "Both clusters are"][alive.length] ?? `All ${alive.length} clusters are`;
  const list = words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words[0];
  $("headline").textContent = kinds.length === 1 ? `${everyOne} ${adjective(kinds[0][0])}`
    : `Of ${alive.length} clusters, ${list.replace(/^(\d+)/, `$1 ${kinds[0][1] === 1 ? "is" : "are"}`)}`;
  $("verdicts").setAttribute("aria-label", list);
  $("verdicts").style.setProperty("--n", alive.length);
  $("verdicts").replaceChildren(...[...alive].sort(byMean).map((k) => make("i", {
    className: verdict(k), title: clusterName(k), style: { "flex-grow": Math.max(members[k].length, 1) },
  })));
  $("cards-note").textContent = thumbs ? `The ${NOUN} of each cluster go from its most to its least certain.` : "";
  $("cards").replaceChildren(...sorted.map(card));
}

function card(k) {
  const kind = verdict(k), rows = members[k].filter((i) => shownAt.has(i)), most = majority(k);
  const strip = make("div", { className: "strip" });
  const n = Math.min(12, rows.length);
  const spread = Array.from({ length: n }, (_, j) => rows[n > 1 ? Math.round((j * (rows.length - 1)) / (n - 1)) : 0]);
  if (thumbs) strip.append(...spread.map(picture).filter(Boolean));
  else if (rows.length) strip.append(make("span", { className: "names soft" }, spread.slice(0, 6).map(nameOf).join(" · ")));
  return make("li", { className: `card ${kind}`, dataset: { cluster: k } },
    make("div", { className: "row" },
      make("h3", {}, make("a", { href: `#cluster/${k}` }, clusterName(k))),
      make("span", { className: "verdict push" }, inWords(kind))),
    make("p", {}, count(members[k].length) + sureness(k)),
    most && make("p", {}, `${percent(most.share)} are ${classOf(most.y)}`),
    make("div", { className: "meter" }, make("i", { style: { width: sureness(k) ? percent(mean[k]) : "0" } })),
    strip);
}
$("sort").onchange = showClusters;

// ------------------------------------------------------- samples that are moved by hand

let target = ""; // of the last move, which is often that of the next one
const option = (value, text) => make("option", { value }, text);
const optionsOf = (clusters) => clusters.map((k) => option(k, clusterName(k)));
function offerMove(form, rows) {
  const [select, button] = form.querySelectorAll("select, button"), own = new Set(rows.map(clusterOf));
  select.replaceChildren(option("", "another cluster"), ...optionsOf(living().filter((k) => own.size > 1 || !own.has(k))),
    option(parent.length, "a new cluster"));
  select.value = target;
  if (select.selectedIndex < 0) select.value = "";
  select.onchange = () => { button.disabled = !select.value || !rows.length; };
  select.onchange();
  button.onclick = () => {
    target = select.value;
    edits.push({ move: rows, into: Number(target) });
    changed();
  };
}

// The gallery of a cluster, where a click opens a sample, or picks it.
let picking = false, lastPicked = null;
const picked = new Set();
function showPicked(thumb) {
  if (picking) thumb.setAttribute("aria-pressed", picked.has(Number(thumb.dataset.i)));
  else thumb.removeAttribute("aria-pressed");
}
function pickAnew(on = picking) {
  picking = on;
  picked.clear();
  lastPicked = null;
  showPicks();
}
function showPicks() {
  $("pick").setAttribute("aria-pressed", picking);
  $("picked").hidden = !picking;
  $("picked-note").textContent = picked.size ? `${count(picked.size)} selected` : `Click on ${NOUN}, with Shift on the last of several.`;
  for (const thumb of $("gallery").querySelectorAll(".thumb")) showPicked(thumb);
  offerMove($("picked-move"), [...picked]);
}
function pick(i, isLast) {
  const { rows } = $("gallery"), here = rows.indexOf(i), from = isLast && lastPicked !== null ? rows.indexOf(lastPicked) : here;
  const added = !picked.has(i);
  for (const j of rows.slice(Math.min(from, here), Math.max(from, here) + 1)) added ? picked.add(j) : picked.delete(j);
  lastPicked = i;
  showPicks();
}
$("pick").onclick = () => pickAnew(!picking);

// -------------------------------------------------------------------- one cluster

const isOther = (i, most) => Boolean(most) && data.y[i] >= 0 && data.y[i] !== most.y;
const FILTERS = { certain: "Most certain", doubtful: "Least certain", between: "Between two" };
if (data.y) FILTERS.other = "Other classes";
$("filters").append(...Object.entries(FILTERS).map(([filter, text]) => make("button", { type: "button", dataset: { filter } }, text)));
$("tools").onsubmit = (event) => event.preventDefault();

function showCluster(k, filter = "certain", pairedWith = null) {
  const alive = living(), place = alive.indexOf(k), kind = verdict(k), most = majority(k);
  const merged = parent.flatMap((p, other) => (p === k && other !== k ? [other] : []));
  $("cluster-title").dataset.name = k;
  $("cluster-title").textContent = clusterName(k);
  $("cluster-lead").replaceChildren(
    make("span", { className: `verdict ${kind}` }, inWords(kind)),
    ` · ${count(members[k].length)}` + sureness(k)
    + (most ? ` · ${percent(most.share)} are ${classOf(most.y)}` : "")
    + (merged.length ? ` · with ${merged.map((other) => `cluster ${other}`).join(", ")}` : ""));
  for (const [id, other] of [["previous", alive[place - 1]], ["next", alive[place + 1]]]) {
    $(id).hidden = other === undefined;
    $(id).href = `#cluster/${other}${filter === "certain" ? "" : `/${filter}`}`;
  }
  $("rename").value = customName.get(k) ?? "";
  $("rename").placeholder = `Cluster ${k}`;
  // A click elsewhere ends the entry of a name: what is clicked on must stay in place.
  $("rename").onchange = () => {
    $("rename").value = $("rename").value.trim();
    edits.push({ rename: k, name: $("rename").value });
    save();
    for (const node of document.querySelectorAll("#gallery .thumb")) node.title = titleOf(node.dataset.i);
  };
  $("merge-into").replaceChildren(option("", "another cluster"), ...optionsOf(alive.filter((other) => other !== k)));
  $("merge").disabled = true;
  $("merge-into").onchange = () => { $("merge").disabled = !$("merge-into").value; };
  $("merge").onclick = () => {
    const into = Number($("merge-into").value);
    history.replaceState(null, "", `#cluster/${into}`);
    edits.push({ merge: k, into });
    changed();
  };
  for (const button of $("filters").children) {
    button.setAttribute("aria-pressed", button.dataset.filter === filter);
    button.onclick = () => { location.hash = `#cluster/${k}/${button.dataset.filter}`; };
  }
  showMembers(k, filter, pairedWith, most);
  pickAnew();
}

function showMembers(k, filter, pairedWith, most) {
  let rows = members[k].filter((i) => shownAt.has(i));
  const chips = [];
  if (filter === "doubtful") rows.reverse();
  if (filter === "other") rows = rows.filter((i) => isOther(i, most));
  if (filter === "between") {
    rows = rows.filter((i) => second[i] >= 0 && secondShare[i] > 0);
    for (const [other, n] of tally(rows.map((i) => second[i]))) {
      chips.push(make("li", {}, make("button", {
        type: "button", className: "chip", aria: { pressed: other === pairedWith }, dataset: { second: other },
        onclick: () => { location.hash = `#cluster/${k}/between${other === pairedWith ? "" : `/${other}`}`; },
      }, clusterName(other), " ", make("span", { className: "soft" }, n.toLocaleString("en")))));
    }
    if (pairedWith !== null) rows = rows.filter((i) => second[i] === pairedWith);
    rows.sort((a, b) => marginOf(a) - marginOf(b) || rank[b] - rank[a]);
  }
  const pressed = document.activeElement.dataset.second;
  $("seconds").replaceChildren(...chips);
  $("seconds").querySelector(`[data-second="${pressed}"]`)?.focus();
  const marked = most && filter !== "other" ? `; outlined: not ${classOf(most.y)}` : "";
  $("shown-note").textContent = rows.length ? count(rows.length) + marked : `No ${NOUN}`;
  const caption = { doubtful: sureOf, between: (i) => `or ${clusterName(second[i]).replace(/^Cluster /, "")}`,
    other: (i) => classOf(data.y[i]) }[filter];
  fillGallery($("gallery"), rows, { caption, mark: (i) => filter !== "other" && isOther(i, most) });
}

// ---------------------------------------------------------------------- one sample

let opened = null;
function openDetail(i, rows = []) {
  opened = { i, rows };
  $("detail-name").textContent = nameOf(i);
  $("detail-picture").replaceChildren(...[picture(i)].filter(Boolean));
  const link = (k) => make("a", { href: `#cluster/${k}`, onclick: () => $("detail").close() }, clusterName(k));
  const facts = [["Cluster", link(clusterOf(i))], [data.measure[0].toUpperCase() + data.measure.slice(1), isMoved(i) ? "none: moved by hand" : isSingle(i) ? "none: alone in its cluster" : percent(confidence[i])]];
  if (second[i] >= 0) facts.push(["Second", make("span", {}, link(second[i]), secondShare[i] > 0 ? ` (${percent(secondShare[i])})` : "")]);
  if (data.y?.[i] >= 0) facts.push(["Class", classOf(data.y[i])]);
  if (data.names) facts.push(["Number", String(i)]);
  offerMove($("detail-move"), [i]);
  $("detail-facts").replaceChildren(...facts.flatMap(([term, value]) => [make("dt", {}, term), make("dd", {}, value)]));
  const near = shownAt.has(i) ? data.nearest[shownAt.get(i)] : [];
  const mark = (j) => clusterOf(j) !== clusterOf(i);
  $("nearest-note").textContent = near.some(mark) ? "; outlined: in another cluster" : "";
  fillGallery($("nearest"), near, { mark });
  if (!$("detail").open) $("detail").showModal();
  $("detail").scrollTop = 0;
  $("detail-close").focus();
}
$("detail-close").onclick = () => $("detail").close();
$("detail").onclose = () => { // the image that was looked at last
  const node = document.activeElement.closest(".gallery")?.querySelector(`.thumb[data-i="${opened.i}"]`);
  if (node) focusThumb(node);
  else refocus();
};
$("detail").addEventListener("click", (event) => { if (event.target === $("detail")) $("detail").close(); });
document.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || !$("detail").open || event.target.closest?.(".thumb, select")) return;
  const place = opened.rows.indexOf(opened.i), next = place < 0 ? undefined : opened.rows[place + step];
  if (next !== undefined) openDetail(next, opened.rows);
});

// -------------------------------------------------------------------------- search

function showFound(text) {
  // A Mac may write é as e and an accent, which no keyboard types.
  const plain = (name) => name.normalize("NFC").toLowerCase();
  const wanted = plain(text);
  const rows = [];
  for (let i = 0; i < N; i++) if (plain(nameOf(i)).includes(wanted)) rows.push(i);
  $("search-title").textContent = `${rows.length ? count(rows.length) : `No ${NOUN}`} with “${text}” in the name`;
  fillGallery($("found"), rows, { caption: fileOf });
}
let before = "#clusters";
$("search").oninput = () => {
  const text = $("search").value;
  if (!location.hash.startsWith("#search/")) before = location.hash || "#clusters";
  history.replaceState(null, "", text ? `#search/${encodeURIComponent(text.toWellFormed())}` : before);
  route();
};
$("search").onkeydown = (event) => {
  if (event.key === "Enter") $("found").querySelector(".thumb")?.focus();
};

// ------------------------------------------------------------------ map and curves

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

const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const dark = matchMedia("(prefers-color-scheme: dark)");
// Hues far from each other, at three levels of lightness: neighbours in number differ.
function colour(k) {
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
    const name = Array.from(visible(customName.get(k) ?? String(k)));
    const short = name.length > 24 ? `${name.slice(0, 23).join("")}…` : name.join("");
    const middle = [0, 1].map((axis) => median(own.map((p) => p[axis]))), far = (p) => Math.hypot(p[0] - middle[0], p[1] - middle[1]);
    const [x, y] = own.reduce((a, b) => (far(b) < far(a) ? b : a)); // a point of its own, as the middle may be another's
    const [left, top] = [width / 2 + scale * (x - middleOf(across)), height / 2 - scale * (y - middleOf(up))];
    const half = (0.36 * Math.min(name.length, 24) + 0.2) * size;
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
// Without a mouse, the points of a cluster can be selected.
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

const CURVES = [
  ["elbo", "ELBO, in nats", () => true],
  ["changed", `Share of ${NOUN} that changed their cluster`, (row) => row.stage !== "moco"],
  ["confidence", "Mean probability of the likeliest cluster", (row) => row.stage !== "moco"],
];
async function showTraining() {
  const stages = [...new Set(data.history.map((row) => row.stage))];
  $("stages-note").textContent = stages.length > 1 ? " The first stage, dotted, learns features without clusters; its ELBO is at another scale."
    + " EM starts from clusters of the features, and keeps them for some epochs, in which the ELBO is lower." : "";
  const Plotly = await withPlotly();
  $("curves").replaceChildren();
  for (const [key, text, wanted] of CURVES) {
    const points = data.history.map((row, n) => ({ ...row, epoch: n + 1 })).filter((row) => key in row && wanted(row));
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

// -------------------------------------------------------------------------- routes

// An address that somebody has typed, or cut off, may not be encoded.
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}
function route() {
  let [view, ...rest] = location.hash.slice(1).split("/");
  const wanted = view === "search" ? decoded(rest.join("/")) : "";
  if (view === "cluster") {
    const k = Number(rest[0]);
    if (!(k in parent)) view = "clusters";
    else showCluster(parent[k], rest[1] in FILTERS ? rest[1] : "certain", rest[2] ? parent[Number(rest[2])] ?? null : null);
  } else if (view === "search") {
    showFound(wanted);
  } else if (!["map", "training", "about"].includes(view)) view = "clusters";
  if ($("search").value.toWellFormed() !== wanted) $("search").value = wanted;
  for (const section of document.querySelectorAll("[data-view]")) section.hidden = section.dataset.view !== view;
  for (const link of document.querySelectorAll(".bar nav a")) {
    if (link.hash === `#${view}` || (view === "cluster" && link.hash === "#clusters")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  $("hover").hidden = true;
  if (view === "clusters") showClusters();
  if (view === "map") showMap();
  if (view === "training") showTraining();
}
// A name that is being typed is kept, although the page is left.
const endEntry = () => $("rename").blur();
addEventListener("pagehide", endEntry);
// The keyboard and a screen reader go on at the title, if what had the focus is gone.
function refocus() {
  const held = document.activeElement;
  if (held.checkVisibility() && !held.matches("body, :disabled")) return;
  const title = document.querySelector("[data-view]:not([hidden]) h1");
  title.tabIndex = -1;
  title.focus({ preventScroll: true });
}
let last = location.hash;
addEventListener("hashchange", () => {
  endEntry();
  if (location.hash === "#main") { history.replaceState(null, "", last); $("main").focus(); return; }
  $("detail").close();
  const [from, to] = [last, location.hash].map((hash) => hash.split("/").slice(0, 2));
  last = location.hash;
  route();
  if (String(from) !== String(to)) scrollTo(0, 0);
  // From a cluster back to its card.
  const card = from[0] === "#cluster" ? $("cards").querySelector(`[data-cluster="${parent[from[1]]}"] a`) : null;
  if (card?.checkVisibility()) card.focus();
  refocus();
});
dark.addEventListener("change", route);

recall();
apply();
showEdits();
if (!data.history.length) $("to-training").hidden = true;
document.documentElement.style.setProperty("--thumb", thumbs && Math.max(thumbs.width, thumbs.height) > 64 ? "84px" : "60px");
route();
})();
