// One run: the request, the answer while it is read, and the server's trace of it.
import { frames } from "./sse.js";
import { at, authorized, problemIn, token } from "./server.js";
import { t as word } from "./words.js";

const bytes = new TextEncoder();
const PATIENCE = 2000; // milliseconds to wait for the end of the trace after the answer

export class Run {
  constructor(route, backends, conversation, changed) {
    Object.assign(this, { route, backends, conversation, changed });
    this.columns = { front: [], events: [], back: [] };
    this.marks = []; // pieces of the answer, for the picture: {t, kind}
    this.reads = []; // from the backend, each with the number of bytes sent to the client before: {read, sent}
    this.lost = new Map();
    this.state = "waiting";
    this.usage = null;
    this.bytes = 0;
    this.notice = null; // why columns are empty
    this.cut = false;
    this.spoke = null; // the dialect of the backend; undefined inside the bridge
    this.began = performance.now();
    this.ended = null;
    this._stop = new AbortController();
    this._ends = 0;
  }

  get now() {
    return performance.now() - this.began;
  }

  // The backend answered with something, or said why not.
  get heard() {
    return this.columns.back.some(({ whole, read }) => whole || read !== undefined) || this.marks.some(({ kind }) => kind !== "error");
  }

  get open() {
    return this.ended === null;
  }

  put(column, text, t = this.now, head = "") {
    this.columns[column].push({ t, text, head });
    this.changed(this);
  }

  mark(kind) {
    this.marks.push({ t: this.now, kind });
    if (this.state === "waiting") this.state = "streaming";
  }

  // ------------------------------------------------------------------ the answer

  async go(turn) {
    const watching = new AbortController();
    const id = token();
    const watched = await this._watch(id, watching.signal);
    try {
      this.script = await import(`./dialects/${this.route.dialect}.js`);
      this.conversation.form ||= this.script.forms?.[0].id; // the list may not be loaded yet
      this.began = performance.now();
      await this._answer(id, turn);
      if (this.stopped) this.state = "stopped";
      else if (this.state !== "failed") this.state = "done";
    } catch (error) {
      this.state = this.stopped ? "stopped" : "failed";
      if (this.state === "failed") turn.fail(error instanceof TypeError ? word("unreachable") : error.message);
    }
    this.ended = this.now;
    this.changed(this);
    await this._lastWords(watched);
    watching.abort();
  }

  async stop() {
    this.stopped = true;
    try {
      // A queued run does not end when its client disconnects.
      const cancel = this.script?.cancel?.(this.conversation);
      if (cancel) await fetch(this._at(cancel), { method: "POST", headers: authorized() });
    } finally {
      this._stop.abort();
    }
  }

  _at(path) {
    return at(this.route.path.replace(/\/$/, "") + path);
  }

  async _answer(id, turn) {
    const asked = this.script.request(this.conversation);
    const headers = { "content-type": "application/json", ...asked.headers };
    const url = this._at(asked.path);
    const body = JSON.stringify(asked.body);
    this.sent = { url: url.href, headers, body };
    this.put("front", JSON.stringify(asked.body, null, 2), 0, `POST ${url.pathname}`);
    const signal = this._stop.signal;
    const traced = authorized({ ...headers, "x-bridge-trace": id });
    let response = await fetch(url, { method: "POST", headers: traced, body, signal });
    this.requests = 1;
    if (response.ok && this.script.follow) {
      this.put("front", await response.text(), this.now, `${response.status}`);
      const events = this._at(this.script.follow(this.conversation));
      this.put("front", "", this.now, `GET ${events.pathname}${events.search}`);
      response = await fetch(events, { headers: authorized({ "x-bridge-trace": id }), signal });
      this.requests = 2;
    }
    for (const name of (response.headers.get("x-bridge-lost") ?? "").split(",").filter(Boolean))
      this._lose({ [name]: "" });
    if (!response.ok) return this._refused(response, turn);
    return this._read(response, turn);
  }

  async _refused(response, turn) {
    const text = await response.text();
    this.put("front", text, this.now, `${response.status}`);
    let problem = "";
    try {
      problem = problemIn(JSON.parse(text));
    } catch {
      // A proxy may answer without JSON.
    }
    turn.fail(problem || response.statusText, `HTTP ${response.status}`);
  }

  async _read(response, turn) {
    const read = this.script.reader(turn, this.conversation);
    for await (const batch of frames(response)) {
      const t = this.now;
      for (const frame of batch) {
        this.columns.front.push({ t, text: frame.text, head: "", from: this.bytes });
        this.bytes += bytes.encode(frame.text).length;
        if (frame.data === null) continue;
        try {
          read(frame);
        } catch {
          turn.unread();
        }
      }
      this.changed(this);
    }
  }

  // ------------------------------------------------------------------ the server's trace

  async _watch(id, signal) {
    try {
      const response = await fetch(at(`_page/trace/${id}`), { headers: authorized(), signal });
      if (!response.ok) {
        this.notice = `unwatched ${problemIn(await response.json())}`;
        return false;
      }
      const told = frames(response);
      await told.next(); // it is ready
      this._listen(told);
      return true;
    } catch {
      this.notice = "unwatched";
      return false;
    }
  }

  async _listen(told) {
    try {
      for await (const batch of told) {
        for (const frame of batch) if (frame.data) this._told(JSON.parse(frame.data));
        this.changed(this);
      }
    } catch {
      // The page aborted it, or the server is gone, which the answer's own stream reports.
    }
  }

  _told({ kind, t, ...facts }) {
    const { back, events } = this.columns;
    switch (kind) {
      case "asked":
        return events.push({ t, text: facts.text, head: "Request" });
      case "sent":
        this.spoke = facts.dialect ?? undefined;
        this.backend = facts.backend;
        // The title names the backend that was called last.
        if (facts.head) back.push({ t, text: pretty(facts.text), head: `${facts.head} (${facts.backend})` });
        return;
      case "frame":
      case "whole":
        return back.push({ t, text: facts.text, head: "", whole: kind === "whole", read: facts.read });
      case "read":
        return this.reads.push(facts);
      case "events":
        for (const line of facts.text.split("\n")) events.push({ t, text: line, head: "", read: facts.read, line: true });
        return;
      case "failed":
        return back.push({ t, text: facts.message, head: facts.code });
      case "lost":
        // The complete list: losses of an abandoned backend do not count.
        this.lost = new Map();
        return this._lose(facts.lost);
      case "cut":
        this.cut = true;
        return;
      case "end":
        this._ends += 1;
        this.code = facts.code; // the bridge's error code; the frontend's dialect may have another
        this._heard?.();
    }
  }

  // The read from the backend that produced an entry: for a frame to the client, the last one before its bytes.
  readOf(entry) {
    if (entry.from === undefined) return entry.read;
    return this.reads.findLast(({ sent }) => sent <= entry.from)?.read;
  }

  _lose(lost) {
    for (const [name, detail] of Object.entries(lost)) if (!this.lost.get(name)) this.lost.set(name, detail);
    this.changed(this);
  }

  async _lastWords(watched) {
    if (watched && this._ends < this.requests) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, PATIENCE);
        this._heard = () => this._ends >= this.requests && (clearTimeout(timer), resolve());
      });
    }
    if (watched && !this.columns.events.length && !this.columns.back.length && !this._ends) this.notice = "elsewhere";
    this.changed(this);
  }
}

export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
