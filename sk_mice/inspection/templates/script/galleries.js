// Lists of samples, with mouse and keyboard.

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
  box.fill = () => { while (done < rows.length) add(); };
}
// On paper nobody scrolls.
addEventListener("beforeprint", () => {
  for (const box of document.querySelectorAll("[data-view]:not([hidden]) .gallery")) box.fill?.();
});

const titleOf = (i) => `${nameOf(i)}\n${sureOf(i)} in ${clusterName(clusterOf(i))}${data.y?.[i] >= 0 ? `\n${classOf(data.y[i])}` : ""}`;
function thumb(i, caption, marked) {
  const inside = picture(i) ?? (thumbs ? make("span", { className: "pic", style: shape }) : null);
  if (!thumbAt.has(i)) caption = fileOf(i); // there is no picture to know it by
  const node = make("button", {
    type: "button", className: marked ? "thumb other" : "thumb", tabIndex: -1, dataset: { i },
    title: titleOf(i),
  }, inside ?? nameOf(i));
  const isFile = caption === fileOf(i); // of which the end is shown
  if (caption && inside) node.append(make("small", { className: isFile ? "file" : "" }, isFile ? make("bdi", {}, caption) : caption));
  return node;
}

for (const chip of document.querySelectorAll("[data-pair]")) {
  const pair = pairOf(chip);
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
