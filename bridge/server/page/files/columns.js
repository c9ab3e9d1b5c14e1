// The three columns of a run, filled as it goes on; and what can be copied of it.
import { atEnd, el, milliseconds } from "./dom.js";
import { t } from "./words.js";

const LONGEST = 1200; // characters shown of one entry
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
  }

  show(run) {
    if (this._run !== run) {
      this._run = run;
      this._shown = { front: 0, events: 0, back: 0 };
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
    list.append(...entries.slice(from, MOST).map(entry));
    if (entries.length > MOST) {
      if (from <= MOST) list.append(el("li", { class: "more" }));
      list.lastChild.textContent = `${entries.length - MOST} ${t("more")}`;
    }
    this._shown[name] = entries.length > MOST ? MOST + 1 : entries.length;
    if (end && entries.length > from) list.scrollTop = list.scrollHeight;
  }

  // Why a column has nothing in it.
  _explain(run) {
    const [first, ...rest] = (run.notice ?? "").split(" ");
    const why = first
      ? [t(first), rest.join(" ")].filter(Boolean).join(": ")
      : run.spoke === undefined
        ? t("inProcess")
        : "";
    const text = run.cut ? t("cut") : why;
    if (!text || this._why === text) return;
    this._why = text;
    this._lists.back.append(el("li", { class: "why" }, text));
  }
}

// To be looked at: ids that say nothing are short, what is very long is cut. A capture has all of it.
function shorter(text) {
  const told = text.slice(0, LONGEST).replace(/[0-9a-f]{24,}/g, (id) => `${id.slice(0, 4)}…${id.slice(-4)}`);
  return text.length > LONGEST ? `${told}… (${text.length})` : told;
}

function entry({ t: at, text, head }) {
  const time = el("time", {}, `+${milliseconds(at)}`);
  const body = shorter(text.trimEnd());
  return el("li", {}, time, head ? el("b", {}, head) : null, body ? el("pre", {}, body) : null);
}

// ---------------------------------------------------------------------- what can be copied

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export function curl({ sent }, keyed) {
  const headers = { ...sent.headers, ...(keyed ? { authorization: "Bearer YOUR_KEY" } : {}) };
  const pieces = Object.entries(headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  return ["curl", "-N", sent.url, ...pieces, "-d", sent.body].map(quoted).join(" ");
}

// The backend's bytes, or the frontend's where the backend has no wire, as `translate --explain` reads them: a stream
// with the times as comments, a body in one piece as it is.
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
