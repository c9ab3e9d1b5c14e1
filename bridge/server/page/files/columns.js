// The three columns of a run, filled while it runs, and the texts that can be copied.
import { atEnd, el, milliseconds } from "./dom.js";
import { reason, t } from "./words.js";

const LONGEST = 20000; // characters shown of one entry
const MOST = 500; // entries shown of one column
const NAMES = ["front", "events", "back"];

export class Columns {
  constructor(root) {
    this._lists = {};
    this._titles = {};
    for (const name of NAMES) {
      const title = (this._titles[name] = el("span", { class: "faint" }));
      const list = (this._lists[name] = el("ol", { tabIndex: 0, "aria-label": t(name) }));
      root.append(el("section", { class: "column", "aria-label": t(name) }, el("h3", {}, t(name), " ", title), list));
    }
    for (const kind of ["pointerover", "focusin"]) root.addEventListener(kind, ({ target }) => this._light(target));
    root.addEventListener("pointerleave", () => this._light(null));
  }

  // Highlights the entries of all columns that belong to the same read from the backend.
  _light(target) {
    const found = this._entries?.get(target?.closest?.("li"));
    const read = found && this._run.readOf(found);
    for (const [item, one] of this._entries ?? []) {
      const lit = read !== undefined && this._run.readOf(one) === read;
      if (item.classList.contains("lit") === lit) continue;
      item.classList.toggle("lit", lit);
      if (lit && !item.parentElement.contains(target)) inView(item);
    }
  }

  show(run) {
    if (this._run !== run) {
      this._run = run;
      this._shown = { front: 0, events: 0, back: 0 };
      this._entries = new Map();
      for (const name of NAMES) this._lists[name].replaceChildren();
      this._why = null;
    }
    this._titles.front.textContent = `${run.route.dialect} · ${run.route.path}`;
    this._titles.events.textContent = t("understood");
    const spoken = [run.spoke ?? run.backends[run.backend], run.backend].filter(Boolean);
    this._titles.back.textContent = [...new Set(spoken)].join(" · ");
    for (const name of NAMES) this._fill(name, run.columns[name]);
    this._explain(run);
  }

  _fill(name, entries) {
    const list = this._lists[name];
    const end = atEnd(list);
    const from = this._shown[name];
    for (const one of entries.slice(from, MOST)) {
      const item = entry(one);
      this._entries.set(item, one);
      list.append(item);
    }
    if (entries.length > MOST) {
      if (from <= MOST) list.append(el("li", { class: "more" }));
      list.lastChild.textContent = `${entries.length - MOST} ${t("more")}`;
    }
    this._shown[name] = entries.length > MOST ? MOST + 1 : entries.length;
    if (end && entries.length > from) list.scrollTop = list.scrollHeight;
  }

  // Why the backend's column is empty or incomplete.
  _explain(run) {
    const [first, ...rest] = (run.notice ?? "").split(" ");
    const why = first
      ? [t(first), reason(rest.join(" "))].filter(Boolean).join(": ")
      : run.spoke === undefined
        ? t("inProcess")
        : "";
    const text = run.cut ? t("cut") : why;
    if (!text || this._why === text) return;
    this._why = text;
    this._lists.back.append(el("li", { class: "why" }, text));
  }
}

// Scrolls only the entry's list, not the page.
function inView(item) {
  const [list, box] = [item.parentElement.getBoundingClientRect(), item.getBoundingClientRect()];
  if (box.top < list.top) item.parentElement.scrollTop -= list.top - box.top;
  if (box.bottom > list.bottom) item.parentElement.scrollTop += box.bottom - list.bottom;
}

// ---------------------------------------------------------------------- one entry

// A line with time, kind and text, which opens to the whole frame.
function entry({ t: at, text, head, line }) {
  const time = el("time", {}, `+${milliseconds(at)}`);
  const told = line ? ofEvent(text) : ofFrame(text, head);
  const summary = [time, el("b", {}, told.kind), told.text ? el("span", {}, told.text) : null];
  if (!told.body) return el("li", { class: "plain" }, el("p", {}, ...summary));
  return el("li", {}, el("details", {}, el("summary", {}, ...summary), el("pre", { tabIndex: 0 }, ...told.body)));
}

// A line of the server's `pretty`: indentation, the event's name, its fields.
function ofEvent(text) {
  const [, depth, kind, facts] = /^(\s*)(\S*) ?(.*)$/.exec(text);
  const short = facts.replace(/(\w+=)?'[^' ]*[0-9a-f]{24,}[^' ]*' ?/g, ""); // ids appear only in the opened line
  return { kind: "\u2007".repeat(depth.length / 2) + kind, text: short, body: facts === short ? null : [cut(facts)] };
}

function ofFrame(text, head) {
  const data = head ? text : text.replace(/^data: ?/gm, "").replace(/^(event|id|retry|):.*\n/gm, "").trim();
  const named = /^event: ?(.*)$/m.exec(text)?.[1];
  let value;
  try {
    value = JSON.parse(data);
  } catch {
    return { kind: head || named || data.trim().slice(0, 80), text: "", body: data && head ? [cut(data)] : null };
  }
  const kind = head || value?.type || named || value?.object?.split?.(".").pop() || nameIn(value) || "{ }";
  return { kind, text: head ? "" : wordsIn(SAYS, value) || wordsIn(IS, value), body: coloured(JSON.stringify(value, null, 2)) };
}

// The first key with an object or list, for frames without a type: `candidates`, `statusUpdate` (in JSON-RPC).
function nameIn(value) {
  const inner = value?.result ?? value;
  return Object.keys(inner ?? {}).find((key) => inner[key] !== null && typeof inner[key] === "object");
}

const SAYS = /^(delta|text|content|reasoning_content|reasoning|arguments|partial_json|thinking|message|name)$/;
const IS = /^(status|finish_reason|stop_reason)$/;

// The first text of a frame, on one line.
function wordsIn(keys, value, key = "") {
  if (typeof value === "string") return keys.test(key) && value ? JSON.stringify(value.slice(0, 200)) : "";
  if (value === null || typeof value !== "object") return "";
  for (const [name, below] of Object.entries(value)) {
    const found = wordsIn(keys, below, Array.isArray(value) ? key : name);
    if (found) return found;
  }
  return "";
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\btrue\b|\bfalse\b|\bnull\b/g;

// JSON as lines; a wrapped line keeps its indent.
function coloured(json) {
  return cut(json)
    .split("\n")
    .map((line) => {
      const node = el("span", { class: "line" }, ...inColours(line), "\n");
      node.style.setProperty("--indent", `${line.search(/\S/)}ch`);
      return node;
    });
}

// Keys, strings and other values in different colours.
function inColours(text) {
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(TOKEN)) {
    nodes.push(text.slice(end, found.index));
    const kind = found[2] !== undefined ? "name" : found[1] !== undefined ? "string" : "value";
    nodes.push(el("span", { class: kind }, found[1] ?? found[0]), found[2] ?? "");
    end = found.index + found[0].length;
  }
  return [...nodes, text.slice(end)];
}

const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}… (${text.length})` : text);

// ---------------------------------------------------------------------- what can be copied

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export function curl({ sent }, keyed) {
  const headers = { ...sent.headers, ...(keyed ? { authorization: "Bearer YOUR_KEY" } : {}) };
  const pieces = Object.entries(headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  return ["curl", "-N", sent.url, ...pieces, "-d", sent.body].map(quoted).join(" ");
}

// The backend's bytes (the frontend's, if the backend runs inside the bridge) in the format of `translate --explain`:
// a stream with times as comments, or one body unchanged.
export function capture(run, version) {
  const answer = run.columns.back.filter((one) => !one.head);
  const back = answer.length > 0;
  const source = back ? run.spoke : run.route.dialect;
  const came = back ? answer : run.columns.front.filter((one) => !one.head);
  if (came.length === 1 && came[0].whole) return came[0].text;
  const target = run.route.dialect;
  const head = [
    `: dialect-bridge ${version}, ${target} at ${run.route.path}, backend ${run.backend ?? "?"}`,
    `: dialect-bridge translate --from ${source} --to ${target} --explain < this`,
  ];
  const body = came.map(({ t: at, text }) => `: +${Math.round(at)} ms\n${text}`);
  return `${head.join("\n")}\n\n${body.join("")}`;
}
