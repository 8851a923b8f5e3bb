// Which part of the page is shown: the address says it.

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
const isLost = (held) => !held.checkVisibility() || held.matches("body, :disabled");
function refocus() {
  if (!isLost(document.activeElement)) return;
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
// Only plots have colours of their own; other views would lose what is selected or typed.
dark.addEventListener("change", () => { if (["#map", "#training"].includes(location.hash)) route(); });

recall();
showEdits();
if (!data.history.length) $("to-training").hidden = true;
document.documentElement.style.setProperty("--thumb", thumbs && Math.max(thumbs.width, thumbs.height) > 64 ? "84px" : "60px");
// A list of vectors has room for most names, and for the first words of texts.
const lengths = (data.names ?? [""]).map((name) => name.length).sort((a, b) => a - b);
document.documentElement.style.setProperty("--name", `${Math.min(lengths[Math.floor(0.9 * lengths.length)], 56)}ch`);
route();
