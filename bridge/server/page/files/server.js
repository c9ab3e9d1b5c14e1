// Requests to the page's own endpoints and to the routes. The key, if any, stays in this tab.

const base = new URL(".", location.href);
const KEY = "dialect-bridge-key";

export const at = (path) => new URL(path.replace(/^\//, ""), base);

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

export const authorized = (headers = {}) =>
  key.get() ? { ...headers, authorization: `Bearer ${key.get()}` } : headers;

export async function own(path) {
  const response = await fetch(at(`_page/${path}`), { headers: authorized(), cache: "no-store" });
  const body = await response.json();
  if (!response.ok)
    throw Object.assign(new Error(body.error?.message ?? response.statusText), { status: response.status });
  return body;
}

// The message of an error, in the format of any dialect.
export function problemIn(body) {
  const found = [body?.error?.message, body?.error, body?.message, body?.detail?.[0]?.msg, body?.detail];
  return found.find((text) => typeof text === "string" && text) ?? "";
}

export function token() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
