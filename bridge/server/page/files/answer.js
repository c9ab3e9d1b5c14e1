// An answer in the chat, shown while a dialect's reader reads it. All content is inserted as text, never as HTML.
import { el } from "./dom.js";
import { Question } from "./question.js";
import { aboutError, stepsOf, t } from "./words.js";

export class Turn {
  constructor(log, run) {
    this.run = run;
    this.said = ""; // the text; stateless dialects send it again as history
    this._questions = [];
    this._blocks = new Map();
    this._body = el("div", { class: "body" });
    this.node = el("article", { class: "turn answer", "aria-label": t("answer") }, this._body);
    log.append(this.node);
  }

  text(id, piece) {
    if (!piece) return;
    this.run.mark("text");
    this.said += piece;
    this._block(id, () => el("p", { class: "text" })).append(piece);
  }

  reasoning(id, piece) {
    if (!piece) return;
    this.run.mark("reasoning");
    const inner = () => {
      const text = el("p");
      this._body.append(el("details", { class: "reasoning", open: true }, el("summary", {}, t("reasoning")), text));
      return text;
    };
    this._block(id, inner, true).append(piece);
  }

  call(id, name) {
    this.run.mark("call");
    const inner = () => {
      const args = el("code");
      this._body.append(el("div", { class: "call" }, el("span", { class: "tag" }, t("call")), el("b", {}, name), args));
      return args;
    };
    this._block(`call ${id}`, inner, true);
  }

  args(id, piece) {
    if (!piece) return;
    this.run.mark("args");
    this._blocks.get(`call ${id}`)?.append(piece);
  }

  result(id, value) {
    this.run.mark("result");
    const text = typeof value === "string" ? value : JSON.stringify(value);
    const shown = el("div", { class: "call result" }, el("span", { class: "tag" }, t("result")), el("code", {}, text));
    const call = this._blocks.get(`call ${id}`)?.parentElement;
    if (call) call.after(shown);
    else this._body.append(shown);
  }

  media(kind, url) {
    this.run.mark("text");
    if (/^data:image\/(png|jpeg|gif|webp);/.test(url ?? "")) this._body.append(el("img", { src: url, alt: kind }));
    else this.note(kind, url);
  }

  note(name, value) {
    this.run.mark("note");
    const text = typeof value === "string" ? value : JSON.stringify(value);
    this._body.append(el("div", { class: "call" }, el("span", { class: "tag" }, t(name)), el("code", {}, text ?? "")));
  }

  // A question to a person: {id, reason, message, payload, responseSchema}, of which only the id is needed.
  ask(asked) {
    this.run.mark("note");
    const question = new Question(asked, () => this._answered());
    this._questions.push(question);
    this._body.append(question.node);
  }

  // The next run takes the answers to all of them.
  _answered() {
    const answers = this._questions.map((question) => question.answer);
    if (answers.every(Boolean)) this.run.answered?.(answers);
  }

  usage(input, output) {
    if (Number.isFinite(input) || Number.isFinite(output)) this.run.usage = { input, output };
  }

  over(reason) {
    if (reason) this.run.reason = reason;
  }

  fail(message, code) {
    this.run.state = "failed";
    this.run.mark("error");
    const shown = [code, message].filter(Boolean).join(": ") || t("failed");
    this._body.append(el("p", { class: "error" }, shown));
  }

  unread() {
    this.note(t("broken"), "");
  }

  // `errors`: base URL of the pages about error codes.
  end(errors) {
    const { code, state } = this.run;
    if (code && state === "failed") this._body.append(whatToCheck(code, `${errors}${code}`, this.run.heard));
    this.node.dataset.state = this.run.state;
    if (!this._body.childNodes.length && this.run.state === "done")
      this._body.append(el("p", { class: "faint" }, t("nothing")));
    if (this.run.state === "stopped") this._body.append(el("p", { class: "faint" }, t("stopped")));
  }

  _block(id, make, placed = false) {
    let block = this._blocks.get(id);
    if (!block) {
      block = make();
      if (!placed) this._body.append(block);
      this._blocks.set(id, block);
    }
    return block;
  }
}

// What to check after an error, with a link to `page`. A backend that was `heard` has the right address.
function whatToCheck(code, page, heard) {
  const fitting = stepsOf(code).filter((step) => !heard || !step.includes("`url`"));
  const steps = fitting.map((step) => el("li", {}, ...marked(step)));
  return el(
    "div",
    { class: "steps" },
    aboutError(code) && el("p", {}, aboutError(code)),
    steps.length ? el("b", {}, t("check")) : null,
    steps.length ? el("ul", {}, ...steps) : null,
    outside(page, `${t("moreAbout")} ${code}`),
  );
}

// A step is Markdown with `code` and [text](link); links lead to the documentation, which the server does not have.
function marked(step) {
  return step.split(/(`[^`]+`|\[[^\]]+\]\([^)]+\))/).map((piece) => {
    if (piece.startsWith("`")) return el("code", {}, piece.slice(1, -1));
    return /^\[(.+)\]\(.+\)$/.exec(piece)?.[1] ?? piece;
  });
}

const outside = (href, text) => el("a", { href, target: "_blank", rel: "noreferrer" }, text);
