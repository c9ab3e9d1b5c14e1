// The page: the selected route, the chat and the displayed run.
import { Turn } from "./answer.js";
import { Columns, capture, curl } from "./columns.js";
import { $, atEnd, el, milliseconds } from "./dom.js";
import { draw, isToken } from "./picture.js";
import { Run } from "./run.js";
import { key, own, token } from "./server.js";
import { aboutError, aboutLoss, filled, lang, putWords, t } from "./words.js";

const TICK = 100; // milliseconds between redraws of a run while nothing arrives
const SCENES = {
  en: ["help", "reasoning", "tool", "server tool", "image", "interrupt", "slow", "error late"],
  zh: ["帮助", "推理", "工具", "服务端工具", "图片", "确认", "慢速", "中途错误"],
}[lang];
const FIRST = SCENES[1]; // the scene that plays by itself

const page = {
  state: null,
  route: null,
  run: null,
  latest: null,
  follows: true,
  busy: null,
  messages: [],
  thread: token(),
};
let columns;
let drawing = false;

// ---------------------------------------------------------------------- routes and backends

async function load() {
  try {
    page.state = await own("state");
    $("problem").hidden = true;
  } catch (error) {
    $("key-open").hidden = ![401, 403].includes(error.status);
    if (error.status === 401) return askForKey(true);
    return problem(error.status ? error.message : t("unreachable"));
  }
  $("version").textContent = page.state.version;
  $("key-open").hidden = !page.state.keyed;
  $("routes").replaceChildren(...page.state.routes.map(card));
  $("backends").replaceChildren(...Object.entries(page.state.backends).map(backend));
  const first = page.state.routes.find((route) => route.speaks) ?? page.state.routes.find(reachable);
  if (first) choose(first);
  connect();
  // Not on touch screens: the on-screen keyboard would cover half of the page.
  if (matchMedia("(pointer: fine)").matches) $("say").focus();
  health();
  // The demo costs nothing, so a new user sees a run at once.
  if (first && speaksToDemo(first) && !page.latest) say(FIRST);
}

const speaksToDemo = (route) => route.speaks && route.backends.some((name) => page.state.backends[name] === "demo");

// Whether it has a base URL, or lines for programs that start the bridge.
const reachable = (route) => !route.path.startsWith("grpc:");

function problem(text) {
  $("problem").textContent = text;
  $("problem").hidden = false;
}

function card(route, number) {
  const id = `route-${number}`;
  const radio = el("input", {
    type: "radio",
    name: "route",
    id,
    disabled: !reachable(route),
    onchange: () => choose(route),
  });
  const why = route.speaks ? null : el("span", { class: "faint" }, t(reachable(route) ? "unspoken" : "grpc"));
  const ways = el("span", { class: "way" }, `${route.path} → ${route.backends.join(", ")}`);
  route.radio = radio;
  return el("div", { class: "card" }, radio, el("label", { htmlFor: id }, el("b", {}, route.dialect), ways, why));
}

function backend([name, dialect]) {
  const dot = el("span", { class: "dot", "aria-hidden": "true" });
  const said = el("span", { class: "said" }, t("checking"));
  return el(
    "li",
    { id: `backend-${name}` },
    dot,
    el("b", {}, name),
    el("span", { class: "faint" }, dialect === name ? "" : (dialect ?? "")),
    said,
  );
}

async function health() {
  let found;
  try {
    found = await own("health");
  } catch {
    return; // a failed request to the server is reported elsewhere
  }
  for (const [name, { state, code, message }] of Object.entries(found)) {
    const row = $(`backend-${name}`);
    row.querySelector(".dot").className = `dot ${state}`;
    row.querySelector(".said").textContent = aboutError(code) || (message ?? t(state));
    row.title = message ?? t(state);
  }
}

function choose(route) {
  const other = page.route !== route;
  page.route = route;
  if (other) anew();
  $("say").disabled = $("send").disabled = !route.speaks;
  showBase();
  const { documented, dialect } = route;
  Object.assign($("document"), { hidden: !documented, href: `${page.state.documents}${dialect}` });
  $("document").setAttribute("aria-label", filled(t("aboutDialect"), dialect));
  route.radio.checked = true;
  route.radio.parentElement.scrollIntoView({ block: "nearest", inline: "nearest" });
  $("model").value = route.model ?? "";
  $("model-named").hidden = $("form-named").hidden = true;
  $("form-chosen").replaceChildren();
  if (route.speaks) {
    import(`./dialects/${route.dialect}.js`).then(
      (script) => {
        if (page.route !== route) return;
        $("model-named").hidden = !script.namesModel;
        $("form-named").hidden = !script.forms;
        $("form-chosen").replaceChildren(...(script.forms ?? []).map((form) => el("option", { value: form.id }, form[lang])));
      },
      () => problem(t("unreachable")),
    );
  }
  $("models").replaceChildren(...route.models.map((name) => el("option", { value: name })));
  $("hints").replaceChildren(...(speaksToDemo(route) ? SCENES : []).map(hint));
}

// ---------------------------------------------------------------------- connecting programs

async function connect() {
  try {
    page.connect = await own("connect");
  } catch {
    return; // a failed request to the server is reported elsewhere
  }
  showBase();
}

const connected = () => page.connect?.find((way) => way.path === page.route?.path && way.dialect === page.route?.dialect);

function showBase() {
  const way = connected();
  $("base").textContent = $("connect-base").textContent = way?.base ?? "";
  $("connect-open").disabled = !way;
}

function openConnect() {
  const way = connected();
  $("program").replaceChildren(...way.programs.map((program) => el("option", { value: program.name }, program.title)));
  $("program").parentElement.hidden = !way.programs.length;
  showProgram();
  $("connect-dialog").showModal();
}

// A text with `code` in it.
const coded = (text) => text.split("`").map((piece, number) => (number % 2 ? el("code", {}, piece) : piece));

function showProgram() {
  const way = connected();
  const program = way.programs.find(({ name }) => name === $("program").value);
  if (!program) return $("snippets").replaceChildren(el("p", {}, filled(t("noProgram"), way.dialect)));
  const notes = [...program.notes, ...(program.browser ? [t("fromPage")] : [])];
  $("snippets").replaceChildren(
    ...program.snippets.flatMap(({ where, text }) => {
      const button = el("button", { type: "button", class: "quiet", onclick: () => copy(button, text) }, t("copy"));
      button.dataset.t = "copy";
      return [el("p", { class: "row faint" }, where, button), el("pre", { tabindex: "0" }, text)];
    }),
    ...notes.map((note) => el("p", { class: "faint" }, ...coded(note))),
  );
}

const hint = (scene) => el("button", { type: "button", class: "hint", onclick: () => say(scene) }, scene);

// ---------------------------------------------------------------------- the chat

function anew() {
  page.busy?.stop();
  page.messages = [];
  page.thread = token();
  $("log").replaceChildren(el("p", { class: "faint empty" }, t(page.route?.speaks === false ? "forPrograms" : "empty")));
}

// `answers`: to the questions of the last run, which a dialect sends in place of a message.
async function say(text, answers) {
  if (!text || page.busy || !page.route?.speaks) return;
  const log = $("log");
  log.querySelector(".empty")?.remove();
  const { route, messages, thread } = page;
  if (!answers) messages.push({ id: token(), role: "user", text });
  const model = $("model").value.trim() || "default";
  const form = $("form-chosen").value;
  const conversation = { dialect: route.dialect, form, model, messages: [...messages], thread, run: token(), answers };
  const run = new Run(route, page.state.backends, conversation, changed);
  run.answered = (given) => say(given.map(({ shown }) => shown).join("\n"), given);
  const said = el("div", { class: "body" }, el("p", { class: "text" }, text));
  log.append(el("article", { class: "turn you", "aria-label": t("you") }, said));
  const turn = new Turn(log, run);
  turn.node.append(el("button", { type: "button", class: "quiet show", onclick: () => goTo(run) }, t("showRun")));
  page.latest = run;
  page.follows = true;
  busy(run);
  show(run);
  await run.go(turn);
  turn.end(page.state.errors);
  changed(run);
  // Only text is sent again: models reject a history with a tool call that has no result.
  if (turn.said) messages.push({ id: token(), role: "assistant", text: turn.said });
  busy(null);
  if (run.state === "failed") health();
}

function busy(run) {
  page.busy = run;
  $("log").setAttribute("aria-busy", run ? "true" : "false");
  $("stop").hidden = !run;
  $("send").hidden = Boolean(run);
  if (!run && document.activeElement === document.body) $("say").focus();
}

// ---------------------------------------------------------------------- the displayed run

function show(run) {
  page.run = run;
  changed(run);
}

// On narrow screens the run is below the chat.
function goTo(run) {
  show(run);
  $("run").scrollIntoView({ block: "start" });
}

// Changes within one frame of the screen are drawn together.
function changed(run) {
  if (run !== page.run || drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    render();
  });
}

function render() {
  const { run } = page;
  const log = $("log");
  $("copy-curl").disabled = $("copy-capture").disabled = !run.sent;
  columns.show(run);
  draw($("picture"), run);
  const first = run.marks.find(isToken);
  const facts = [
    first ? `${t("firstToken")} ${milliseconds(first.t)}` : null,
    run.open ? null : `${t("total")} ${milliseconds(run.ended)}`,
    `${run.bytes.toLocaleString()} ${t("bytes")}`,
    run.usage ? filled(t("tokens"), run.usage.input ?? "?", run.usage.output ?? "?") : null,
    run.reason ?? null,
  ];
  $("facts").textContent = facts.filter(Boolean).join(" · ");
  const lost = [...run.lost].map(([name, detail]) => el("li", {}, el("b", {}, name), aboutLoss(name, detail)));
  const told = run.state === "done" ? el("span", { class: "faint" }, t("lostNothing")) : null;
  $("lost").replaceChildren(...(lost.length ? [el("span", {}, t("lost")), el("ul", {}, ...lost)] : told ? [told] : []));
  $("status").textContent = t(run.state);
  $("status").className = run.state;
  if (run === page.latest && page.follows) {
    const error = log.querySelector(".answer:last-child .error"); // the steps below it may be long
    log.scrollTop = error ? error.offsetTop - log.offsetTop : log.scrollHeight;
  }
  if (run.open) {
    // The time axis advances while nothing arrives.
    setTimeout(changed, TICK, run);
  }
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = t("copied");
    setTimeout(() => (button.textContent = t(button.dataset.t)), 1500);
  } catch {
    // Browsers allow the clipboard only over HTTPS and on localhost.
    $("copy-text").value = text;
    $("copy-dialog").showModal();
    $("copy-text").select();
  }
}

function askForKey(refused) {
  $("key-open").hidden = false;
  $("key").value = key.get();
  $("key-why").textContent = t(refused && key.get() ? "keyWrong" : "keyWhy");
  if (!$("key-dialog").open) $("key-dialog").showModal();
}

// ---------------------------------------------------------------------- the page itself

function fit(field) {
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight, 180)}px`;
}

function begin() {
  putWords(document);
  columns = new Columns($("columns"));
  const field = $("say");
  const send = () => {
    if (page.busy) return;
    say(field.value.trim());
    field.value = "";
    fit(field);
  };
  $("form").addEventListener("submit", (event) => (event.preventDefault(), send()));
  field.addEventListener("input", () => fit(field));
  field.addEventListener("keydown", (event) => {
    // During input-method composition, Enter confirms characters.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && page.busy && !document.querySelector("dialog[open]")) page.busy.stop();
  });
  let top = 0;
  $("log").addEventListener("scroll", ({ target }) => {
    // Scrolling up stops following; new content alone does not.
    page.follows = atEnd(target) || (page.follows && target.scrollTop >= top);
    top = target.scrollTop;
  });
  $("stop").addEventListener("click", () => page.busy?.stop());
  $("to-run").addEventListener("click", () => $("run").scrollIntoView({ block: "start" }));
  $("to-chat").addEventListener("click", () => $("chat").scrollIntoView({ block: "start" }));
  $("anew").addEventListener("click", () => (anew(), field.focus()));
  $("copy-curl").addEventListener("click", (event) => copy(event.target, curl(page.run, page.state.keyed)));
  $("copy-capture").addEventListener("click", (event) => copy(event.target, capture(page.run, page.state.version)));
  $("connect-open").addEventListener("click", openConnect);
  $("program").addEventListener("change", showProgram);
  $("copy-base").addEventListener("click", (event) => copy(event.target, $("connect-base").textContent));
  $("key-open").addEventListener("click", () => askForKey(false));
  $("key-form").addEventListener("submit", () => (key.set($("key").value.trim()), load()));
  new ResizeObserver(() => page.run && draw($("picture"), page.run)).observe($("picture"));
  $("picture").append(el("p", { class: "faint" }, t("emptyRun")));
  load();
}

begin();
