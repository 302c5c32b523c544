// The chat page: the conversation, its settings, and the live panel.

import { ApiError, chat, load } from "./api.js";
import { render } from "./text.js";

const POLL_MS = 1000;
const get = (id) => document.getElementById(id);

const page = {
  scroll: get("scroll"),
  list: get("messages"),
  input: get("input"),
  settings: get("settings"),
};
// {role, content}; answers also have what is shown below them.
let talk = [];
let running = null; // The AbortController of the answer under way.
const firstTimes = [];
const wholeTimes = [];

// ---- Settings --------------------------------------------------------------------------

const NUMBERS = ["temperature", "top_p", "min_p", "top_k", "seed", "max_tokens", "repetition_penalty"];
// The key is a secret: it lives only as long as the page.
const KEPT = ["system", ...NUMBERS];

function field(name) {
  return page.settings.elements[name];
}

function showRanges() {
  for (const output of page.settings.querySelectorAll("output")) {
    output.value = field(output.htmlFor.value).value;
  }
}

function keepSettings() {
  showRanges();
  const values = Object.fromEntries(KEPT.map((name) => [name, field(name).value]));
  localStorage.setItem("renga.settings", JSON.stringify(values));
}

function restoreSettings() {
  const values = JSON.parse(localStorage.getItem("renga.settings") ?? "{}");
  for (const name of KEPT) {
    if (typeof values[name] === "string") field(name).value = values[name];
  }
  showRanges();
}

function requestOf(messages) {
  const request = {
    messages: messages.map(({ role, content }) => ({ role, content })),
  };
  const system = field("system").value.trim();
  if (system) request.messages.unshift({ role: "system", content: system });
  for (const name of NUMBERS) {
    const value = field(name).valueAsNumber;
    if (Number.isFinite(value)) request[name] = value;
  }
  return request;
}

// ---- Conversation ----------------------------------------------------------------------

function keepTalk() {
  sessionStorage.setItem("renga.talk", JSON.stringify(talk));
}

function milliseconds(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
}

function numbersOf(message) {
  const parts = [];
  if (message.first) parts.push(`first token ${milliseconds(message.first)}`);
  const { usage, timings } = message;
  if (usage) {
    const decode = timings?.decode_ms ?? 0;
    if (decode > 0 && usage.completion_tokens > 1) {
      parts.push(`${(((usage.completion_tokens - 1) * 1000) / decode).toFixed(1)} tokens/s`);
    }
    parts.push(`${usage.completion_tokens} ${usage.completion_tokens === 1 ? "token" : "tokens"}`);
    const cached = usage.prompt_tokens_details.cached_tokens;
    parts.push(`${cached} of ${usage.prompt_tokens} prompt tokens cached`);
  }
  if (message.stopped) parts.push("stopped");
  if (message.finish === "length") parts.push("cut at the length limit");
  return parts.join(" · ");
}

function addMessage(message) {
  const item = get("message").content.firstElementChild.cloneNode(true);
  item.classList.add(message.role);
  item.querySelector(".who").textContent = message.role === "user" ? "You" : "Model";
  item.querySelector(".copy").addEventListener("click", async (event) => {
    await navigator.clipboard.writeText(message.content);
    event.target.textContent = "Copied";
    setTimeout(() => (event.target.textContent = "Copy"), 1500);
  });
  item.querySelector(".again").addEventListener("click", regenerate);
  page.list.append(item);
  showMessage(item, message);
  return item;
}

function showMessage(item, message) {
  item.querySelector(".text").replaceChildren(
    ...(message.role === "user" ? [message.content] : render(message.content)),
  );
  item.querySelector(".numbers").textContent = numbersOf(message);
  item.querySelector(".problem")?.remove();
  if (!message.problem) return;
  const problem = document.createElement("p");
  problem.className = "problem";
  problem.setAttribute("role", "alert");
  problem.textContent = message.problem;
  item.querySelector(".text").after(problem);
}

function showTalk() {
  page.list.replaceChildren();
  for (const message of talk) addMessage(message);
  get("welcome").hidden = talk.length > 0;
}

// Follows the text only if its end is in view: somebody who reads further up stays there.
function follow(change) {
  const { scroll } = page;
  const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
  change();
  if (atEnd) scroll.scrollTop = scroll.scrollHeight;
}

function setRunning(controller) {
  running = controller;
  get("stop").hidden = !controller;
  get("send").hidden = Boolean(controller);
}

// Reads the answer into `message`; `changed` is called after each piece.
async function readAnswer(message, request, controller, changed) {
  const begin = performance.now();
  for await (const part of chat(request, field("key").value, controller.signal)) {
    if (part.text) {
      message.first ??= performance.now() - begin;
      message.content += part.text;
    }
    Object.assign(message, part.usage && { usage: part.usage }, part.timings && { timings: part.timings });
    if (part.finish) message.finish = part.finish;
    changed();
  }
  firstTimes.push(message.first ?? performance.now() - begin);
  wholeTimes.push(performance.now() - begin);
}

async function answer() {
  const request = requestOf(talk);
  const message = { role: "assistant", content: "" };
  talk.push(message);
  const item = addMessage(message);
  item.classList.add("waiting");
  page.scroll.scrollTop = page.scroll.scrollHeight;
  const controller = new AbortController();
  setRunning(controller);
  let frame = 0;
  const draw = () => {
    frame = 0;
    follow(() => showMessage(item, message));
  };
  try {
    await readAnswer(message, request, controller, () => (frame ||= requestAnimationFrame(draw)));
    get("announce").textContent = `Answer complete: ${message.content}`;
  } catch (error) {
    if (controller.signal.aborted) message.stopped = true;
    else message.problem = error instanceof ApiError ? error.message : "The server can't be reached.";
  }
  cancelAnimationFrame(frame);
  item.classList.remove("waiting");
  draw();
  setRunning(null);
  showMine();
  keepTalk();
}

function send(text) {
  const content = text.trim();
  if (!content || running) return;
  if (!page.settings.reportValidity()) return;
  // An answer that failed has nothing to say in the next prompt.
  talk = talk.filter((message) => message.role === "user" || message.content);
  talk.push({ role: "user", content });
  showTalk();
  page.input.value = "";
  fitInput();
  answer();
}

function regenerate() {
  if (running || talk.at(-1)?.role !== "assistant") return;
  talk.pop();
  showTalk();
  answer();
  page.input.focus();
}

function fitInput() {
  page.input.style.height = "auto";
  page.input.style.height = `${page.input.scrollHeight + 2}px`;
  get("send").disabled = !page.input.value.trim();
}

// ---- Live panel ------------------------------------------------------------------------

function percentile99(times) {
  const sorted = [...times].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(sorted.length * 0.99) - 1)];
}

function showMine() {
  if (wholeTimes.length === 0) return;
  get("mine-first").textContent = milliseconds(percentile99(firstTimes));
  get("mine-whole").textContent = milliseconds(percentile99(wholeTimes));
}

function showState(state, text) {
  get("state").dataset.state = state;
  // Only a change is worth a word to a screen reader.
  if (get("state-text").textContent !== text) get("state-text").textContent = text;
}

function showLoad(now) {
  showState(now.ready ? "ready" : "away", now.ready ? "ready" : "not ready");
  if (now.model) {
    get("model").textContent = now.model.id;
    get("model").title = `${now.model.backend}, context ${now.model.max_model_len} tokens`;
  }
  get("live-running").textContent = `${now.running} of ${now.max_sequences}`;
  get("live-waiting").textContent = now.waiting;
  get("live-busy").textContent = `${Math.round(now.busy_share * 100)} %`;
  get("live-predicted").textContent = milliseconds(now.predicted_first_token_ms);
  const total = Math.max(1, now.kv_pages_total);
  const used = Math.max(0, now.kv_pages_total - now.kv_pages_free - now.kv_pages_cached);
  get("live-kv").textContent = `${used} used, ${now.kv_pages_cached} cached of ${now.kv_pages_total}`;
  get("kv-used").style.width = `${(100 * used) / total}%`;
  get("kv-cached").style.width = `${(100 * now.kv_pages_cached) / total}%`;
}

async function poll() {
  if (!document.hidden) {
    try {
      showLoad(await load(field("key").value));
    } catch (error) {
      showState("away", error instanceof ApiError ? error.message : "server away");
    }
  }
  setTimeout(poll, POLL_MS);
}

// ---- What the user does ----------------------------------------------------------------

function openSide(open) {
  document.body.classList.toggle("side-open", open);
  get("toggle-side").setAttribute("aria-expanded", String(open));
  document.querySelector("main").inert = open;
  get(open ? "close-side" : "toggle-side").focus();
}

get("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send(page.input.value);
});
page.input.addEventListener("input", fitInput);
page.input.addEventListener("keydown", (event) => {
  // isComposing: Enter ends a word of an input method.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send(page.input.value);
});
get("stop").addEventListener("click", () => {
  running?.abort();
  page.input.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (document.body.classList.contains("side-open")) openSide(false);
  else running?.abort();
});
get("new-chat").addEventListener("click", () => {
  running?.abort();
  talk = [];
  keepTalk();
  showTalk();
  page.input.focus();
});
for (const button of document.querySelectorAll(".suggestion")) {
  button.addEventListener("click", () => send(button.textContent));
}
get("toggle-side").addEventListener("click", () => openSide(!document.body.classList.contains("side-open")));
for (const id of ["shade", "close-side"]) get(id).addEventListener("click", () => openSide(false));
page.settings.addEventListener("input", keepSettings);
page.settings.addEventListener("submit", (event) => event.preventDefault());
page.settings.addEventListener("reset", () => setTimeout(keepSettings));

restoreSettings();
talk = JSON.parse(sessionStorage.getItem("renga.talk") ?? "[]");
showTalk();
fitInput();
page.input.focus();
poll();
