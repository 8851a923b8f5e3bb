// The samples of the page, their names and pictures.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const N = data.labels.length, K = data.n_clusters, thumbs = data.thumbs;
const NOUN = data.noun, ONE = NOUN === "images" ? "image" : "sample";
const PART = 240; // thumbnails added at a time; it makes full rows of 1 to 6, 12, 15 or 16
const inPercent = (share) => Math.floor(100 * share + 0.50005); // halves up, also if a sum is a little less
const asShown = (share) => inPercent(share) / 100; // so that limits agree with what is read
const percent = (share) => `${inPercent(share)}%`;
const count = (n, one = ONE) => `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;
// A byte for each character; Uint8Array.from would take many times as long.
function asBytes(text) {
  const bytes = new Uint8Array(text.length);
  for (let n = 0; n < text.length; n++) bytes[n] = text.charCodeAt(n);
  return bytes;
}
const bytesIn = (id) => asBytes(atob($(id).textContent));
// Values and how often each is there, the most frequent first.
function tally(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

const inShort = (text, most) => {
  const letters = Array.from(text);
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
};

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

const rank = new Int32Array(N);
data.order.forEach((i, place) => { rank[i] = place; });
const shownAt = new Map(data.shown.map((i, place) => [i, place]));
// Thumbnails: the sheet of each, and its place there.
const thumbAt = new Map(thumbs?.members.flatMap((rows, sheet) => rows.map((i, cell) => [i, [sheet, cell]])));

const rawName = (i) => (data.names ? data.names[i] : String(i));
// Invisible characters and bytes that are not UTF-8 become escapes.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
function visible(text) {
  if (text.isWellFormed() && !INVISIBLE.test(text)) return text;
  return Array.from(text, (c) => {
    const code = c.codePointAt(0);
    if (code >= 0xdc80 && code <= 0xdcff) return "\\x" + (code - 0xdc00).toString(16);
    if (code >= 0xd800 && code <= 0xdfff) return "\\u" + code.toString(16);
    if (c === "\n") return "\\n";
    return INVISIBLE.test(c) ? "\\u" + code.toString(16).padStart(4, "0") : c;
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
  if (!thumbAt.has(i)) return null;
  const { columns, width, height, members } = thumbs, [sheet, cell] = thumbAt.get(i);
  const rows = Math.ceil(members[sheet].length / columns);
  const x = cell % columns, y = Math.floor(cell / columns);
  const at = (place, n) => (n > 1 ? `${(100 * place) / (n - 1)}%` : "0");
  return make("span", {
    className: Math.max(width, height) < 48 ? "pic pixels" : "pic",
    aria: { role: "img", label: nameOf(i) },
    style: {
      ...shape,
      "background-image": `url(${sheetUrl(sheet)})`,
      "background-size": `${columns * 100}% ${rows * 100}%`,
      "background-position": `${at(x, columns)} ${at(y, rows)}`,
    },
  });
}
