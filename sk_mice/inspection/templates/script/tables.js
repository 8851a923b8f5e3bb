// Tables of the clusters, as CSV: written, and opened again.

const FILE = data.names ? "file" : "sample"; // the first column
// Bytes of names that are not UTF-8 come back as they were.
function bytesOf(text) {
  const encoder = new TextEncoder();
  const parts = text.split(/((?<![\ud800-\udbff])[\udc80-\udcff])/);
  return parts.map((part, n) => (n % 2 ? Uint8Array.of(part.charCodeAt(0) - 0xdc00) : encoder.encode(part)));
}
// Spreadsheets may also separate columns by semicolons and tabs.
const quoted = (text) => (/[",;\t\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
function csv(rows) {
  const lines = [[FILE, "cluster", "name", data.measure, "original_cluster"]];
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
for (const id of ["download", "download-edited"]) {
  $(id).onclick = () => {
    download("clusters.csv", data.labels.keys());
    isKept = true; // by the reader
    showEdits();
  };
}

// Opens a table that was downloaded: here, in another browser, or from a page of other images.
$("open").onclick = () => $("table").click();
$("table").onchange = async () => {
  const [file] = $("table").files;
  $("table").value = "";
  try {
    const { clusters, names, ...counts } = clustersOf(cellsOf(await bytesOfFile(file)));
    edits.push({ open: editsOf(clusters, names), file: file.name, ...counts });
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
// Names are compared by their bytes, one character each, as they may not be UTF-8.
const asCharacters = (bytes) => Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
const bytesAsCharacters = (text) => bytesOf(text).map(asCharacters).join("");
const asText = (cell) => new TextDecoder().decode(asBytes(cell));
function cellsOf(bytes) {
  const text = asCharacters(bytes).replace(/^\xef\xbb\xbf/, "");
  const newline = /^[^\r\n]*\r(?!\n)/.test(text) ? "\\r" : "\\r?\\n"; // the former as on an old Mac
  const [first] = text.split(RegExp(newline), 1);
  const between = first.split(";").some((name) => /^"?(file|sample)"?$/.test(name)) ? ";" : ","; // as some spreadsheets write
  const cell = new RegExp(`("(?:[^"]|"")*"|[^${between}\\r\\n]*)(${between}|${newline}|$)`, "gy");
  const rows = [[]];
  let done = 0;
  for (const [all, value, end] of text.matchAll(cell)) {
    if (!all) break;
    done += all.length;
    rows.at(-1).push(value.startsWith('"') ? value.slice(1, -1).replaceAll('""', '"') : value);
    if (/[\r\n]/.test(end)) rows.push([]);
  }
  if (done < text.length) throw new Error(`cannot be read as CSV after its line ${rows.length}`);
  return rows.filter((row) => row.some(Boolean));
}
const NOT_UTF8 = ". Some names are not UTF-8: a spreadsheet must save them as CSV UTF-8";
const GARBLED = ". If it comes from a spreadsheet, import it there as UTF-8, and save it there as CSV UTF-8";
const hasLetters = (name) => /[^\x00-\x7f]/.test(name); // that another encoding changes
// The cluster of each sample of the page in a table, null if it is not there, and the names of clusters.
// Counts: rows of the page's samples, rows of others, and what to do if letters may make the difference.
function clustersOf([header = [], ...rows]) {
  const columns = [FILE, "cluster", "name", "original_cluster"];
  const [atFile, atCluster, atName, atOriginal] = columns.map((name) => header.indexOf(name));
  if (atFile < 0 || atCluster < 0) throw new Error(`has no column ${FILE}, or no column cluster`);
  const found = new Map();
  for (const row of rows) {
    const file = row[atFile] ?? "";
    if (found.has(file)) throw new Error(`has ${visible(asText(file))} twice`);
    found.set(file, row);
  }
  const plain = (cell) => asText(cell).normalize("NFC").replaceAll("\\", "/").replace(/^(\.\/)+/, ""); // by a Mac, by Windows, or by find
  const alike = new Map([...found].map(([file, row]) => [plain(file), row]));
  const wanted = data.labels.map((_, i) => {
    const file = bytesAsCharacters(rawName(i));
    return found.get(file) ?? (plain(file).includes("\ufffd") ? undefined : alike.get(plain(file)));
  });
  const known = [...wanted.keys()].filter((i) => wanted[i]), taken = new Set(wanted), names = new Map();
  const others = [...found].flatMap(([file, row]) => (taken.has(row) ? [] : [plain(file)]));
  const isLacking = wanted.some((row, i) => !row && hasLetters(rawName(i))) && others.some(hasLetters);
  const hint = others.some((file) => file.includes("\ufffd")) ? NOT_UTF8 : isLacking ? GARBLED : "";
  if (!known.length) throw new Error(`has none of the ${NOUN} of this page${hint}`);
  const same = known.filter((i) => atOriginal < 0 || Number(wanted[i][atOriginal]) === data.labels[i]);
  if (same.length < data.limits.same * known.length) throw new Error("is of another fit, whose clusters have other numbers");
  for (const i of known) {
    const k = wanted[i][atCluster], name = asText(wanted[i][atName] ?? "");
    if (name.includes("\ufffd")) throw new Error(`has a name of cluster ${k}, ${name}${NOT_UTF8}`);
    if (!/^\d{1,9}$/.test(k)) throw new Error(`has no cluster number for ${nameOf(i)}`);
    if ((names.get(Number(k)) ?? name) !== name) throw new Error(`has two names for cluster ${k}: ${names.get(Number(k))} and ${name}`);
    names.set(Number(k), name);
  }
  const clusters = wanted.map((row) => (row ? Number(row[atCluster]) : null));
  return { clusters, names, n: known.length, others: others.length, hint };
}
// The moves, merges and names that make the clusters of a table from those of the model.
function editsOf(clusters, names) {
  // Clusters that were made by hand are numbered anew, as some may be gone.
  const made = [...names.keys()].filter((k) => k >= K).sort((a, b) => a - b);
  const numberOf = (k) => (k < K ? k : K + made.indexOf(k));
  const goal = clusters.map((k) => (k === null ? null : numberOf(k)));
  const known = [...goal.keys()].filter((i) => goal[i] !== null);
  const own = Array.from({ length: K }, () => []), isLeft = new Set(goal), moves = new Map();
  for (const [i, k] of data.labels.entries()) own[k].push(i);
  const into = own.map((rows, k) => { // a cluster in which nothing is left was merged
    const goals = rows.map((i) => goal[i]).filter((m) => m !== null);
    return isLeft.has(k) || !goals.length || 2 * goals.length < rows.length ? k : tally(goals)[0][0];
  });
  const move = (i) => moves.set(goal[i], moves.get(goal[i]) ?? []).get(goal[i]).push(i);
  for (const i of known) if (goal[i] !== into[data.labels[i]]) move(i);
  for (const k of made) { // each begins with a move
    if (!moves.has(numberOf(k))) move(known.find((i) => goal[i] === numberOf(k)));
  }
  const merges = into.flatMap((m, k) => (m === k ? [] : [{ merge: k, into: m }]));
  const steps = [...moves].sort((a, b) => a[0] - b[0]).map(([m, rows]) => ({ move: rows, into: m })).concat(merges);
  for (const [k, name] of names) if (name && name !== ownName(numberOf(k))) steps.push({ rename: numberOf(k), name });
  return steps;
}
