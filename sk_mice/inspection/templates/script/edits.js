// Clusters, and the changes that a reader makes to them.

// {merge: k, into: m}, {move: samples, into: m, name?}, {rename: k, name}, or a table: {open: edits, file, n, others, hint}
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
      if (edit.name) customName.set(edit.into, edit.name);
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
const ownName = (k) => (k === data.noise ? "Noise" : `Cluster ${k}`);
const clusterName = (k) => customName.get(k) ?? ownName(k);
const living = () => parent.flatMap((p, k) => (p === k ? [k] : []));
function verdict(k) {
  if (!members[k].length) return "empty";
  if (data.of_neighbors && members[k].length === 1) return "single";
  if (k === data.noise && !customName.has(k)) return "noise";
  if (asShown(mean[k]) >= data.limits.steady) return "steady";
  return asShown(mean[k]) < data.limits.unsure ? "unsure" : "mixed";
}
const SIGN = { steady: "●", mixed: "◐", unsure: "○", noise: "–", single: "○", empty: "–" };
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
  try {
    localStorage.setItem(KEY, JSON.stringify(edits));
    isKept = true;
  } catch { // it is full, or forbidden
    isKept = !edits.length;
  }
  showEdits();
  $("told").textContent = $("edits-note").textContent;
}

// Changes survive a reload, where the browser lets a file keep something.
const KEY = `sk_mice:${data.key}`;
let isKept = true;
addEventListener("beforeunload", (event) => {
  endEntry();
  if (!isKept) event.preventDefault();
});
function recall() {
  try {
    edits.splice(0, edits.length, ...JSON.parse(localStorage.getItem(KEY) ?? "[]"));
    apply();
  } catch { // forbidden, or not written by a page like this
    edits.length = 0;
    apply();
  }
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
  $("edits-note").textContent = !edit ? "" : "open" in edit ? `Opened: ${edit.file}, with ${count(edit.n)} of this page${edit.others ? ` and ${count(edit.others, "other")}` : ""}${edit.hint}`
    : "move" in edit ? `Moved: ${count(edit.move.length)} to ${clusterName(edit.into)}`
    : "merge" in edit ? `Merged: ${ownName(edit.merge)} into ${clusterName(edit.into)}`
    : `Renamed: ${ownName(edit.rename)} to ${clusterName(edit.rename)}${refusal(edit.rename)}`;
  if (!isKept) $("edits-note").textContent += ". This browser does not keep your changes: download the CSV before you leave";
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
  classes: (k) => (asShown(majority(k)?.share) < data.limits.pure ? percent(majority(k).share) : null),
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
  for (const chip of document.querySelectorAll("[data-pair]")) chip.parentElement.hidden = pairOf(chip).some(isMoved);
  offerCopies();
  for (const more of document.querySelectorAll(".doubt details")) {
    const n = more.querySelectorAll("li:not([hidden])").length;
    more.hidden = !n;
    more.querySelector("summary").textContent = `${n} more`;
  }
  const doubts = [...document.querySelectorAll(".doubt")];
  for (const doubt of doubts) doubt.hidden = !doubt.querySelector("li:not([hidden]), :scope > button:not([hidden])");
  $("no-doubts").hidden = doubts.some((doubt) => !doubt.hidden);
}
$("undo").onclick = () => {
  edits.pop();
  changed();
  $("told").textContent = "Undone"; // and not the change before
};

// Of each group of copies, all but the first that is in its place.
const pairOf = (chip) => chip.dataset.pair.split(" ").map(Number);
const copies = () => (data.copies ?? []).flatMap((rows) => rows.filter((i) => !isMoved(i)).slice(1));
function offerCopies() {
  const button = $("copies"), rows = copies();
  if (!button) return;
  button.hidden = !rows.length;
  button.textContent = rows.length === 1 ? "Move the copy to a cluster of its own" : `Move the ${rows.length.toLocaleString("en")} copies to a cluster of their own`;
  button.onclick = () => {
    const into = living().find((k) => clusterName(k) === "copies") ?? parent.length;
    edits.push({ move: rows, into, name: "copies" });
    changed();
  };
}
