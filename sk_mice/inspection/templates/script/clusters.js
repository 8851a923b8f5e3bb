// The list of clusters, and one cluster.

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
  else if (rows.length) strip.append(make("span", { className: "names soft" }, spread.slice(0, 6).map((i) => inShort(nameOf(i), 60)).join(" · ")));
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

let target = ""; // of the last move, and proposed for the next one
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
  $("picked-note").textContent = picked.size ? `${count(picked.size)} selected` : `Click on ${NOUN}; Shift selects all since the last click.`;
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

function showCluster(k, filter, pairedWith) {
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
  $("rename").placeholder = ownName(k);
  // The page is not drawn anew, as a click on another of its parts may have ended the entry.
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
      }, make("span", { dataset: { name: other } }, clusterName(other)), " ", make("span", { className: "soft" }, n.toLocaleString("en")))));
    }
    if (pairedWith !== null) rows = rows.filter((i) => second[i] === pairedWith);
    rows.sort((a, b) => marginOf(a) - marginOf(b) || rank[b] - rank[a]);
  }
  const pressed = document.activeElement.dataset.second;
  $("seconds").replaceChildren(...chips);
  $("seconds").querySelector(`[data-second="${pressed}"]`)?.focus();
  const mark = (i) => filter !== "other" && isOther(i, most);
  const marked = rows.some(mark) ? `; outlined: not ${classOf(most.y)}` : "";
  const shown = data.shown.length < N ? " shown" : ""; // the cluster may have more
  $("shown-note").textContent = rows.length ? count(rows.length) + shown + marked : `No ${NOUN}${shown}`;
  const caption = { doubtful: sureOf, between: (i) => `or ${clusterName(second[i]).replace(/^Cluster /, "")}`,
    other: (i) => classOf(data.y[i]) }[filter];
  fillGallery($("gallery"), rows, { caption, mark });
}
