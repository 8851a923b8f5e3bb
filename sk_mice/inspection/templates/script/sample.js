// One sample, and the search for samples.

// A link to the file of a sample, from where the page was written.
function fileLink(i) {
  if (data.folder === null) return null;
  const path = rawName(i).replaceAll(data.separator, "/"), isAbsolute = /^([a-z]:)?\//i.test(path);
  const encoded = bytesAsCharacters(path).replace(/[^\w.~:/-]/g, (c) => `%${c.charCodeAt(0).toString(16).padStart(2, "0")}`);
  const start = isAbsolute ? (path.startsWith("/") ? "file://" : "file:///") : `${data.folder}/`;
  return make("a", { href: start + encoded, target: "_blank", rel: "noopener", title: "Opens if the page and the file are where they were" }, "Open the file");
}

let opened = null;
function openDetail(i, rows = []) {
  opened = { i, rows };
  $("detail-name").textContent = nameOf(i);
  $("detail-picture").replaceChildren(...[picture(i), fileLink(i)].filter(Boolean));
  const link = (k) => make("a", { href: `#cluster/${k}`, onclick: () => $("detail").close() }, clusterName(k));
  const sure = isMoved(i) ? "none: moved by hand" : isSingle(i) ? "none: alone in its cluster" : percent(confidence[i]);
  const facts = [["Cluster", link(clusterOf(i))], [data.measure[0].toUpperCase() + data.measure.slice(1), sure]];
  if (second[i] >= 0) facts.push(["Second cluster", make("span", {}, link(second[i]), secondShare[i] > 0 ? ` (${percent(secondShare[i])})` : "")]);
  if (data.y?.[i] >= 0) facts.push(["Class", classOf(data.y[i])]);
  if (data.names) facts.push(["Number", String(i)]);
  offerMove($("detail-move"), [i]);
  $("detail-facts").replaceChildren(...facts.flatMap(([term, value]) => [make("dt", {}, term), make("dd", {}, value)]));
  const near = shownAt.has(i) ? data.nearest[shownAt.get(i)] : [];
  const mark = (j) => clusterOf(j) !== clusterOf(i);
  $("nearest-note").textContent = near.some(mark) ? "; outlined: in another cluster" : "";
  fillGallery($("nearest"), near, { mark });
  $("detail-previous").disabled = beside(-1) === undefined;
  $("detail-next").disabled = beside(1) === undefined;
  if (!$("detail").open) $("detail").showModal();
  $("detail").scrollTop = 0;
  $("detail-close").focus();
}
function beside(step) {
  const place = opened.rows.indexOf(opened.i);
  return place < 0 ? undefined : opened.rows[place + step];
}
function goBeside(step) {
  const next = beside(step);
  if (next !== undefined) openDetail(next, opened.rows);
}
for (const [id, step] of [["detail-previous", -1], ["detail-next", 1]]) {
  $(id).onclick = () => {
    goBeside(step);
    if (!$(id).disabled) $(id).focus();
  };
}
$("detail-close").onclick = () => $("detail").close();
$("detail").onclose = () => { // the image that was looked at last, or one after it if that was moved
  const left = new Map([...document.querySelectorAll("[data-view]:not([hidden]) .thumb")].map((node) => [Number(node.dataset.i), node]));
  const after = isLost(document.activeElement) ? opened.rows.slice(opened.rows.indexOf(opened.i)) : [opened.i];
  const node = left.get(after.find((i) => left.has(i)));
  if (node) focusThumb(node);
  else refocus();
};
$("detail").addEventListener("click", (event) => { if (event.target === $("detail")) $("detail").close(); });
document.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || !$("detail").open || event.target.closest?.(".thumb, select")) return;
  goBeside(step);
});

// -------------------------------------------------------------------------- search

function showFound(text) {
  // A Mac may write é as e and an accent, which no keyboard types.
  const plain = (name) => name.normalize("NFC").toLowerCase();
  const wanted = plain(text);
  const rows = [...data.labels.keys()].filter((i) => plain(nameOf(i)).includes(wanted));
  const n = rows.filter((i) => thumbAt.has(i)).length; // the others have empty places
  const shown = thumbs && n < rows.length ? `, ${n ? n.toLocaleString("en") : "none"} of them shown` : "";
  $("search-title").textContent = `${rows.length ? count(rows.length) : `No ${NOUN}`} with “${text}” in the name${shown}`;
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
