// The texts of the page, in English and Chinese. The language is that of ?lang=, else the browser's.

const WORDS = {
  en: {
    key: "Key",
    routes: "Routes",
    backends: "Backends",
    chat: "Chat",
    anew: "New chat",
    message: "Message",
    write: "Write a message; Enter sends it",
    model: "Model",
    form: "Version",
    stop: "Stop",
    send: "Send",
    run: "Run",
    copyCurl: "Copy curl",
    copyCapture: "Copy capture",
    copied: "Copied",
    copy: "Copy",
    connect: "Connect",
    connectTitle: "Connect a program",
    baseUrl: "Base URL",
    program: "Program",
    noProgram: "Any client of {} works with this base URL.",
    fromPage: "Any page may call the bridge. To keep others out, and to let your page resume runs and read histories, name its origin in server.cors.origins.",
    about: "Programs call a route, which speaks their protocol; a backend answers in its own. Try a route here, and see what both sides send.",
    copyBy: "Copy this text",
    close: "Close",
    keyTitle: "Key",
    keyWhy: "This server asks for a key. It stays in this tab and is sent to this server only.",
    keyWrong: "This key does not open the page.",
    keyUse: "Continue",
    front: "Frontend wire",
    events: "Events",
    back: "Backend wire",
    you: "You",
    answer: "Answer",
    reasoning: "Reasoning",
    call: "Tool call",
    result: "Result",
    showRun: "Show this run",
    ok: "available",
    checking: "checking",
    failing: "failing",
    unspoken: "For programs: choose it, then Connect.",
    forPrograms: "Programs use this route, not this page. “Connect” has the lines for them.",
    grpc: "This route uses gRPC, which browsers cannot call.",
    empty: "Choose a route and send a message. What both sides send appears next to the chat.",
    emptyRun: "No run yet.",
    waiting: "Waiting",
    streaming: "Answering",
    done: "Done",
    stopped: "Stopped",
    failed: "Failed",
    understood: "between the two",
    lost: "Lost in translation",
    lostNothing: "Nothing was lost.",
    inProcess: "This backend runs inside the bridge and sends no bytes.",
    elsewhere: "Another process of this server handles this run, so it cannot be shown here. Set workers: 1 to see it.",
    unwatched: "The server does not show this run",
    cut: "The run is too long to be shown completely; the rest is omitted.",
    firstToken: "first token",
    total: "total",
    bytes: "bytes",
    tokens: "{} tokens in, {} out",
    text: "Text",
    tools: "Tools",
    gap: "longest gap",
    picture: "The run over time",
    more: "more, not shown here; the capture has them",
    unreachable: "The server cannot be reached. Check that dialect-bridge is still running.",
    nothing: "The answer ended without content.",
    check: "What to check",
    moreAbout: "More about",
    aboutDialect: "Docs: {}",
    documents: "Docs",
    broken: "This frame could not be read",
    interrupt: "Waiting for you",
    yes: "Yes",
    no: "No",
    sendAnswer: "Send the answer",
    decline: "Do not answer",
    toRun: "Run ↓",
    toChat: "Chat ↑",
  },
  zh: {
    key: "密钥",
    routes: "路由",
    backends: "后端",
    chat: "对话",
    anew: "新对话",
    message: "消息",
    write: "输入消息，按回车键发送",
    model: "模型",
    form: "版本",
    stop: "停止",
    send: "发送",
    run: "运行过程",
    copyCurl: "复制 curl",
    copyCapture: "复制抓包数据",
    copied: "已复制",
    copy: "复制",
    connect: "接入",
    connectTitle: "接入一个程序",
    baseUrl: "基础 URL",
    program: "程序",
    noProgram: "任何 {} 客户端都可以使用这个基础 URL。",
    fromPage: "任何网页都可以调用。如需拒绝其他网页，并让自己的网页续读运行、读取历史，请在 server.cors.origins 中写明它的源。",
    about: "程序调用路由，路由使用它们的协议；后端用自己的协议作答。在这里试用一条路由，并查看双方发送的内容。",
    copyBy: "复制此文本",
    close: "关闭",
    keyTitle: "密钥",
    keyWhy: "此服务器需要密钥。密钥仅保存在本标签页中，且只发送给此服务器。",
    keyWrong: "此密钥无法打开本页面。",
    keyUse: "使用",
    front: "前端报文",
    events: "事件",
    back: "后端报文",
    you: "你",
    answer: "回答",
    reasoning: "推理",
    call: "工具调用",
    result: "结果",
    showRun: "查看此次运行",
    ok: "可用",
    checking: "检查中",
    failing: "故障",
    unspoken: "供程序使用：选中后点“接入”。",
    forPrograms: "这条路由供程序使用，不在本页面对话。“接入”中有要粘贴的内容。",
    grpc: "此路由使用 gRPC，浏览器无法调用。",
    empty: "选择一条路由，发送一条消息。两侧的报文会显示在旁边。",
    emptyRun: "尚无运行记录。",
    waiting: "等待中",
    streaming: "正在回答",
    done: "已完成",
    stopped: "已停止",
    failed: "失败",
    understood: "解析得到的内容",
    lost: "转换中丢失",
    lostNothing: "没有丢失内容。",
    inProcess: "此后端在 dialect-bridge 进程内运行，没有报文。",
    elsewhere: "此次运行由服务器的另一个进程处理，无法在此显示事件和后端报文；设置 workers: 1 即可显示。",
    unwatched: "服务器未提供此次运行的详情",
    cut: "此次运行的内容超出可显示的长度，其余部分已省略。",
    firstToken: "首 token",
    total: "总用时",
    bytes: "字节",
    tokens: "输入 {}、输出 {} token",
    text: "文本",
    tools: "工具",
    gap: "最长间隔",
    picture: "运行时间线",
    more: "条未显示，可在抓包数据中查看",
    unreachable: "无法连接服务器。请检查 dialect-bridge 是否仍在运行。",
    nothing: "回答已结束，但没有内容。",
    check: "排查方法",
    moreAbout: "详细说明（英文）",
    aboutDialect: "文档：{}",
    documents: "文档",
    broken: "无法读取此帧",
    interrupt: "等待你的答复",
    yes: "是",
    no: "否",
    sendAnswer: "发送答复",
    decline: "不答复",
    toRun: "运行过程 ↓",
    toChat: "对话 ↑",
  },
};

const asked = new URLSearchParams(location.search).get("lang") ?? navigator.language;
export const lang = asked.toLowerCase().startsWith("zh") ? "zh" : "en";
export const t = (name) => WORDS[lang][name] ?? name;

// Chinese for the server's English texts (features, reasons of losses, error codes), and what to check after each error,
// in both languages.
const [CHINESE, STEPS] = await Promise.all([lang === "zh" ? table("chinese.json") : null, table("steps.json")]);

async function table(name) {
  try {
    return await (await fetch(new URL(name, import.meta.url))).json();
  } catch {
    return null; // the page works without it
  }
}

export const aboutError = (code) => CHINESE?.errors[code] ?? "";
export const stepsOf = (code) => STEPS?.[code]?.[lang] ?? [];

// A reason is one or more statements; `{}` in a table entry matches any text.
export function reason(text) {
  if (!CHINESE || !text) return text;
  return CHINESE.reasons[text] ?? text.split("; ").map(statement).join("；");
}

export const filled = (text, ...values) => text.replaceAll("{}", () => values.shift());

const TEMPLATES = Object.entries(CHINESE?.reasons ?? {})
  .filter(([english]) => english.includes("{}"))
  .map(([english, told]) => [new RegExp(`^${english.split("{}").map(literal).join("(.+)")}$`), told]);

function literal(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

// What follows the name of a lost feature: its name in Chinese, and the reason.
export function aboutLoss(name, detail) {
  const chinese = CHINESE?.features[name];
  const why = reason(detail);
  return [chinese ? `（${chinese}）` : "", why ? `${lang === "zh" ? "：" : ": "}${why}` : ""].join("");
}

function statement(text) {
  const known = CHINESE.reasons[text];
  if (known) return known;
  for (const [english, told] of TEMPLATES) {
    const [, ...values] = english.exec(text) ?? [];
    if (values.length) return filled(told, ...values);
  }
  return text;
}

export function putWords(root) {
  root.documentElement.lang = lang === "zh" ? "zh-Hans" : "en";
  for (const node of root.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of root.querySelectorAll("[data-label]")) node.setAttribute("aria-label", t(node.dataset.label));
  for (const node of root.querySelectorAll("[data-placeholder]")) node.placeholder = t(node.dataset.placeholder);
  for (const link of root.querySelectorAll("nav a")) if (link.lang === lang) link.setAttribute("aria-current", "true");
}

// The texts that a language lacks.
export const missing = () =>
  Object.values(WORDS).flatMap((words) => Object.keys(WORDS.en).filter((name) => !words[name]));
