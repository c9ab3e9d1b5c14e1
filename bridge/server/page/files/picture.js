// A run over time: the first token, the pieces in three lanes, tool calls and gaps.
import { milliseconds, svg } from "./dom.js";
import { t } from "./words.js";

const LEFT = 76;
const RIGHT = 2;
const LANE = 22;
const TOP = 20;
const LANES = { reasoning: 0, text: 1, call: 2, args: 2, result: 2, note: 2 };
const TITLES = ["reasoning", "text", "tools"];

export const isToken = ({ kind }) => kind !== "note" && kind !== "error";

export function gaps(run) {
  const times = [0, ...run.marks.map((mark) => mark.t), ...(run.open ? [run.now] : [run.ended])];
  return times.slice(1).map((to, n) => ({ from: times[n], to, size: to - times[n] }));
}

export function draw(root, run) {
  const { paddingLeft, paddingRight } = getComputedStyle(root);
  const width = Math.max(root.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight), 260);
  const height = TOP + 3 * LANE + 18;
  const total = Math.max(run.open ? run.now : run.ended, 10);
  const x = (at) => LEFT + (at / total) * (width - LEFT - RIGHT);
  const first = run.marks.find(isToken);
  const long = gaps(run).filter(({ size, from }) => from > 0 && size > Math.max(300, total / 20));
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  const label = [t("picture")];
  TITLES.forEach((name, lane) => {
    const y = TOP + lane * LANE;
    picture.append(svg("text", { x: 0, y: y + 14, class: "name" }, t(name)));
    picture.append(svg("line", { x1: LEFT, x2: width - RIGHT, y1: y + 10, y2: y + 10, class: "lane" }));
  });
  const waited = first?.t ?? (run.open ? run.now : 0);
  picture.append(svg("rect", { x: LEFT, y: TOP, width: x(waited) - LEFT, height: 3 * LANE - 2, class: "wait" }));
  for (const { from, to } of long) {
    picture.append(svg("rect", { x: x(from), y: TOP, width: x(to) - x(from), height: 3 * LANE - 2, class: "gap" }));
  }
  for (const { kind, t: at } of thinned(run.marks, x)) {
    const lane = LANES[kind];
    if (lane === undefined)
      picture.append(svg("line", { x1: x(at), x2: x(at), y1: TOP, y2: TOP + 3 * LANE, class: "broken" }));
    else
      picture.append(
        svg("rect", {
          x: x(at) - 1.5,
          y: TOP + lane * LANE + 3,
          width: 3,
          height: 14,
          rx: 1.5,
          class: `piece ${kind}`,
        }),
      );
  }
  if (first) {
    const at = x(first.t);
    const side = at > width / 2 ? "end" : "start";
    picture.append(svg("line", { x1: at, x2: at, y1: TOP - 4, y2: TOP + 3 * LANE, class: "first" }));
    const place = { x: side === "end" ? at - 4 : at + 4, y: TOP - 8, class: "note", "text-anchor": side };
    picture.append(svg("text", place, `${t("firstToken")} ${milliseconds(first.t)}`));
    const [longest] = long.toSorted((one, other) => other.size - one.size);
    const middle = longest ? (x(longest.from) + x(longest.to)) / 2 : at;
    if (Math.abs(middle - at) > 210) {
      const above = { x: middle, y: TOP - 8, class: "note", "text-anchor": middle > width - 110 ? "end" : "middle" };
      picture.append(svg("text", above, `${t("gap")} ${milliseconds(longest.size)}`));
    }
    label.push(`${t("firstToken")} ${milliseconds(first.t)}`);
  }
  picture.append(svg("text", { x: LEFT, y: height - 4, class: "note" }, "0"));
  picture.append(
    svg("text", { x: width - RIGHT, y: height - 4, class: "note", "text-anchor": "end" }, milliseconds(total)),
  );
  const counts = TITLES.map(
    (name, lane) => `${t(name)} ${run.marks.filter(({ kind }) => LANES[kind] === lane).length}`,
  );
  const longest = Math.max(0, ...long.map(({ size }) => size));
  picture.setAttribute(
    "aria-label",
    [...label, ...counts, longest ? `${t("gap")} ${milliseconds(longest)}` : ""].filter(Boolean).join(", "),
  );
  root.replaceChildren(picture);
}

// Draws only one of several pieces at the same place.
function thinned(marks, x) {
  const last = {};
  return marks.filter(({ kind, t: at }) => {
    const place = Math.round(x(at) / 2);
    if (last[kind] === place) return false;
    last[kind] = place;
    return true;
  });
}
