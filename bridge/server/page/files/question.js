// A question of an agent to a person: its words, the fields of its schema, and what one may answer.
import { el } from "./dom.js";
import { t } from "./words.js";

const WORDS = ["message", "question", "prompt", "text", "title"]; // where payloads have the words of a question

export class Question {
  // `done` is called when it is answered; `answer` is {id, yes, status, payload, shown, call} then, where `call` is what
  // the dialect said of the call that it is about.
  constructor(asked, done) {
    const { id, reason, message, responseSchema, call } = asked;
    // Over AG-UI, the bridge sends the payload of other dialects in its own property.
    const payload = parsed(asked.payload ?? asked.metadata?.["dialect-bridge"]?.payload ?? asked.metadata);
    this.answer = null;
    this._done = done;
    this._id = id;
    this._call = call;
    const known = payload && typeof payload === "object" && !Array.isArray(payload) ? { ...payload } : {};
    const schema = responseSchema ?? known.responseSchema ?? known.response_schema ?? known.schema;
    const place = WORDS.find((name) => typeof known[name] === "string");
    const told = known.name && reason && message?.startsWith(`${reason}:`) ? reason : message; // the call is shown below
    const words = told ?? known[place] ?? (typeof payload === "string" ? payload : reason);
    for (const name of [place, "responseSchema", "response_schema", "schema"]) delete known[name];
    const fields = Object.entries(schema?.properties ?? {});
    this._inputs = fields.map(([name, field]) => [name, field, input(name, field)]);
    const required = schema?.required ?? [];
    const rows = this._inputs.map(([name, field, node]) =>
      el("label", {}, el("span", {}, `${field.title ?? name}${required.includes(name) ? " *" : ""}`), node),
    );
    const buttons = fields.length
      ? [this._button("sendAnswer", true, "main"), this._button("decline", false)]
      : [this._button("yes", true, "main"), this._button("no", false)];
    this._buttons = el("div", { class: "row" }, ...buttons);
    this.node = el(
      "form",
      { class: "question", onsubmit: (event) => event.preventDefault() },
      el("span", { class: "tag" }, t("interrupt")),
      words ? el("p", { class: "text" }, words) : null,
      ...details(known),
      ...rows,
      this._buttons,
    );
  }

  _button(word, yes, kind = "quiet") {
    return el("button", { type: "button", class: kind, onclick: () => this._decide(word, yes) }, t(word));
  }

  _decide(word, yes) {
    if (this.answer || (yes && !this.node.reportValidity())) return;
    const values = Object.fromEntries(this._inputs.map(([name, field, node]) => [name, value(field, node)]));
    const said = Object.entries(values).filter(([, each]) => each !== undefined);
    const payload = this._inputs.length ? Object.fromEntries(said) : { approved: yes };
    const declined = this._inputs.length && !yes;
    this.answer = {
      id: this._id,
      call: this._call,
      yes,
      status: declined ? "cancelled" : "resolved",
      payload: declined ? undefined : payload,
      shown: this._inputs.length && yes ? said.map(([name, each]) => `${name}: ${each}`).join("\n") : t(word),
    };
    for (const node of this.node.elements) node.disabled = true;
    this._done();
  }
}

// What the question is about: the arguments of a call as lines, all else as it is.
function details({ name, arguments: args, ...rest }) {
  const shown = [];
  if (name) shown.push(el("div", { class: "call" }, el("b", {}, String(name)), el("code", {}, lines(args))));
  if (Object.keys(rest).length) shown.push(el("code", {}, lines(rest)));
  return shown;
}

function parsed(told) {
  try {
    return typeof told === "string" ? JSON.parse(told) : told;
  } catch {
    return told; // a text
  }
}

function lines(told) {
  const known = parsed(told);
  if (known === undefined || known === null) return "";
  if (typeof known !== "object") return String(known);
  const text = (each) => (typeof each === "string" ? each : JSON.stringify(each));
  return Object.entries(known).map(([name, each]) => `${name}: ${text(each)}`).join("\n");
}

function input(name, { type, enum: choices, default: preset, description = "" }) {
  const usual = { name, title: description, "aria-label": name };
  if (choices) return el("select", usual, ...choices.map((each) => el("option", { value: String(each) }, String(each))));
  if (type === "boolean") return el("input", { ...usual, type: "checkbox", checked: preset === true });
  const number = type === "number" || type === "integer";
  const step = type === "number" ? "any" : "1";
  return el("input", { ...usual, type: number ? "number" : "text", ...(number ? { step } : {}), value: preset ?? "" });
}

function value({ type, enum: choices }, node) {
  if (choices) return choices[node.selectedIndex];
  if (type === "boolean") return node.checked;
  if (node.value === "") return undefined;
  return type === "number" || type === "integer" ? Number(node.value) : node.value;
}
