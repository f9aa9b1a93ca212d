// The console's script. Whatever comes from the broker becomes text nodes, never markup.
"use strict";

// --- making elements

function make(tag, attributes, ...children) {
  const svg = ["svg", "path", "line", "text"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : document.createTextNode(String(child))));
  return element;
}

const byId = (id) => document.getElementById(id);
const badge = (text, kind) => make("span", { class: `badge ${kind || ""}` }, text);
const link = (view, given, text) => make("a", { href: address(view, given) }, text);
const address = (view, given) => `#/${view}${given ? "?" + new URLSearchParams(given) : ""}`;

// Columns: label, cell, style, and what the broker calls it where it can sort by it. `sorting`: by, down, and go to change it.
function table(kind, columns, rows, none, sorting) {
  if (!rows.length) return make("p", { class: "none" }, none);
  const head = columns.map(([label, , style, by]) => {
    const sorted = sorting && by && by === sorting.by ? (sorting.down ? "descending" : "ascending") : null;
    return make("th", { class: style, scope: "col", "aria-sort": sorted }, sorting && by
      ? make("button", { class: "sort", onclick() { sorting.go(by, by === sorting.by ? !sorting.down : style === "n"); } }, label) : label);
  });
  const body = rows.map((row) => make("tr", { class: row.state ? `is-${row.state}` : null }, columns.map(([label, cell, style]) =>
    make("td", { class: style, "data-label": label }, cell(row)))));
  return make("table", { class: kind }, make("thead", null, make("tr", null, head)), make("tbody", null, body));
}

// --- how things are written

const NOT_KNOWN = "–";
const whole = (number) => number === null || number === undefined ? NOT_KNOWN : number.toLocaleString("en-US");
const short = (number) => number < 1000 ? String(Math.round(number * 10) / 10)
  : number < 1e6 ? `${(number / 1e3).toPrecision(3)} k` : number < 1e9 ? `${(number / 1e6).toPrecision(3)} M` : `${(number / 1e9).toPrecision(3)} G`;

function bytes(number) {
  if (number === null || number === undefined) return NOT_KNOWN;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 999.5 && unit < units.length - 1) { number /= 1000; unit += 1; }
  return `${unit ? number.toPrecision(3) : Math.round(number)} ${units[unit]}`;
}

function duration(ms) {
  if (ms === null || ms === undefined) return NOT_KNOWN;
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return s < 86400 ? `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min` : `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
}

const time = (ms) => ms < 0 || ms > 8.64e15 ? NOT_KNOWN : new Date(ms).toISOString().replace("T", " ").replace("Z", "");

// --- talking to the broker

let token = null; // of OAUTHBEARER, kept in this page's memory alone

async function ask(path, given, change) {
  const query = given && !change ? "?" + new URLSearchParams(given) : "";
  const headers = change ? { "Content-Type": "application/json", "X-Eoslog-Console": "1" } : {};
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(`api/${path}${query}`, change
    ? { method: "POST", headers, body: JSON.stringify(given) } : { headers });
  const told = await answer.json();
  if (answer.status === 401 && /bearer/i.test(answer.headers.get("WWW-Authenticate") || "") && await logIn()) {
    return ask(path, given, change);
  }
  if (!answer.ok) throw new Error(told.error || `HTTP ${answer.status}`);
  return told;
}

async function logIn() {
  const field = make("input", { type: "password", autocomplete: "off", "aria-label": "Token" });
  const yes = await confirmed("Who are you?", [make("p", null, "This broker wants an OAUTHBEARER token."), field], "Log in");
  token = field.value.trim();
  return yes && token !== "";
}

function confirmed(title, body, act) {
  const dialog = byId("ask");
  if (dialog.open) return Promise.resolve(false);
  dialog.querySelector("h2").textContent = title;
  dialog.querySelector(".body").replaceChildren(...body);
  dialog.querySelector(".act").textContent = act;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

function tell(text) {
  Object.assign(byId("told"), { textContent: text, hidden: false });
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => { byId("told").hidden = true; }, 8000);
}

// --- pictures

const WIDE = 560, HIGH = 190, LEFT = 52, BOTTOM = 20, TOP = 8;

function niceTop(most) {
  const power = 10 ** Math.floor(Math.log10(Math.max(most, 1)));
  return [1, 1.5, 2, 3, 5, 7.5, 10].map((step) => step * power).find((top) => top >= Math.max(most, 1));
}

function chart(title, series, ago, write) {
  const span = Math.max(60, ago.length ? ago[0] : 60);
  const top = niceTop(Math.max(0, ...series.flatMap(([, values]) => values)) * 1.05);
  const x = (seconds) => LEFT + (WIDE - LEFT - 6) * (1 - seconds / span);
  const y = (value) => HIGH - BOTTOM - (HIGH - BOTTOM - TOP) * value / top;
  const svg = make("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": title });
  for (const part of [0, 0.5, 1]) {
    const anchor = part === 0 ? "end" : part === 1 ? "start" : "middle";
    svg.append(make("line", { class: "grid", x1: LEFT, x2: WIDE - 6, y1: y(top * part), y2: y(top * part) }),
      make("text", { x: LEFT - 6, y: y(top * part) + 4, "text-anchor": "end" }, write(top * part)),
      make("text", { x: x(span * part), y: HIGH - 4, "text-anchor": anchor }, part ? `${Math.round(span * part)} s ago` : "now"));
  }
  series.forEach(([, values], index) => {
    if (!values.length) return;
    const points = values.map((value, at) => `${x(ago[at]).toFixed(1)},${y(value).toFixed(1)}`);
    const foot = (seconds) => `${x(seconds).toFixed(1)},${y(0)}`;
    svg.append(make("path", { class: `area s${index}`, d: `M${foot(ago[0])}L${points.join("L")}L${foot(ago[ago.length - 1])}Z` }),
      make("path", { class: `line s${index}`, d: `M${points.join("L")}` }));
  });
  const now = series.map(([, values]) => make("b", null, write(values.length ? values[values.length - 1] : 0)));
  const cursor = make("line", { class: "cursor", y1: TOP, y2: HIGH - BOTTOM, visibility: "hidden" });
  svg.append(cursor);
  const show = (at) => series.forEach(([, values], index) => { now[index].textContent = write(values.length ? values[at] : 0); });
  svg.addEventListener("pointermove", (event) => {
    if (!ago.length) return;
    const box = svg.getBoundingClientRect();
    const seconds = (1 - ((event.clientX - box.left) / box.width * WIDE - LEFT) / (WIDE - LEFT - 6)) * span;
    const at = ago.reduce((best, one, index) => Math.abs(one - seconds) < Math.abs(ago[best] - seconds) ? index : best, 0);
    for (const [name, value] of [["x1", x(ago[at])], ["x2", x(ago[at])], ["visibility", "visible"]]) cursor.setAttribute(name, value);
    show(at);
  });
  svg.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); show(ago.length - 1); });
  const legend = series.map(([name], index) => make("span", null, make("i", { class: `s${index}` }), `${name} `, now[index]));
  return make("section", { class: "card" }, make("h2", null, title), make("div", { class: "legend" }, legend), make("div", { class: "chart" }, svg));
}

// --- the views: each makes what stays, and answers a function that shows the newest facts

const views = {};
let about = null;

function frame(title, ...rest) {
  byId("view").replaceChildren(make("div", { class: "title" }, make("h1", null, title), ...rest));
  document.title = `${title} · eoslog`;
}

const slot = () => byId("view").appendChild(make("div"));

const loss = (number, write) => number ? badge(write(number), "warn") : write(number);

views.overview = () => {
  frame("Overview");
  const tiles = slot(), charts = slot();
  return { every: 2000, async show() {
    const [topics, groups, open] = await Promise.all([ask("topics", { limit: 1 }), ask("groups", { limit: 1 }), ask("transactions", { limit: 1 })]);
    const rates = about.rates ? await ask("rates") : null;
    const tile = (view, text, number) => make("a", { class: "tile", href: address(view) }, make("b", null, number), make("span", null, text));
    const last = (values) => values.length ? values[values.length - 1] : 0;
    tiles.className = "tiles";
    tiles.replaceChildren(tile("topics", "topics", whole(topics.total)), tile("groups", "groups", whole(groups.total)),
      tile("transactions", "open transactions", whole(open.total)),
      ...(rates ? [tile("overview", "records written / s", short(last(rates.records))), tile("overview", "bytes in / s", bytes(last(rates.bytes_in)))] : []));
    charts.className = "charts";
    if (rates) {
      charts.replaceChildren(
        chart("Records written per second", [["records", rates.records]], rates.ago, short),
        chart("Bytes per second", [["in", rates.bytes_in], ["out", rates.bytes_out]], rates.ago, bytes),
        chart("Requests per second", [["produce", rates.requests.produce], ["fetch", rates.requests.fetch], ["other", rates.requests.other]], rates.ago, short),
        chart("Mean time of a produce request", [["answered after", rates.produce_ms]], rates.ago, (ms) => `${short(ms)} ms`));
    } else charts.replaceChildren(make("p", { class: "none card" }, "Rates are for those who may DESCRIBE the cluster."));
  } };
};

const MOST_ROWS = 200;

// A list: filtered, sorted by a click on a head, what each sink made as a line that unfolds. By name it comes in pages:
// `next` of the answer names where the next one begins. `sinks`: the columns of those lines; without it nothing is folded.
function listing(view, given, path, columns, none, { extra = [], wanted = {}, sinks = null } = {}) {
  const place = { ...given }, unfolded = new Set();
  const go = (changed) => { Object.assign(place, { after: "" }, changed); replaceAddress(view, place); refresh(); };
  const search = make("input", { type: "search", placeholder: "Filter by name", value: given.filter || "", "aria-label": "Filter by name",
    oninput() { clearTimeout(search.timer); search.timer = setTimeout(() => go({ filter: search.value }), 250); } });
  const all = make("button", { id: "unfold", onclick() { go({ all: place.all ? "" : "yes" }); } }, "Unfold sinks");
  byId("view").append(make("div", { class: "bar" }, search, extra, sinks ? all : null));
  const folds = slot(), card = slot();
  card.className = "card";

  const more = (told) => {
    const left = told.matching - told[path].length;
    const text = told.sorted !== (place.sort || "name") ? "Too many to sort: filter" : left > 0 && !place.after ? `${whole(left)} more: filter` : null;
    return text ? make("span", { class: "note" }, text) : null;
  };
  const toggle = (sink) => { if (!unfolded.delete(sink)) unfolded.add(sink); refresh(); };
  const name = (row) => make("button", { class: "fold", "aria-expanded": String(unfolded.has(row.sink)), onclick() { toggle(row.sink); } }, row.sink);

  return { every: 4000, async show() {
    const sorting = { by: place.sort || "name", down: place.down === "yes", go: (sort, down) => go({ sort, down: down ? "yes" : "" }) };
    const asked = { limit: MOST_ROWS, filter: place.filter || "", sort: sorting.by, down: sorting.down ? "yes" : "no", ...wanted };
    const told = await ask(path, { ...asked, after: place.after || "", ...(sinks && !place.all ? { fold: "yes" } : {}) });
    const lines = place.after ? [] : told.sinks || [], opened = lines.map((row) => row.sink).filter((sink) => unfolded.has(sink));
    const inside = [];
    for (const sink of opened) inside.push(await ask(path, { ...asked, sink })); // one by one: the broker takes few at a time
    const step = (after, text) => make("button", { onclick() { go({ after }); } }, text);
    all.setAttribute("aria-pressed", String(Boolean(place.all)));
    folds.className = lines.length ? "card" : "";
    folds.replaceChildren(...(lines.length ? [make("h2", null, `Sinks (${whole(told.total_sinks)})`), table("sinks", [["Sink", name], ...sinks], lines, ""),
      told.total_sinks > lines.length ? make("div", { class: "pager" }, `${whole(told.total_sinks - lines.length)} more: filter`) : ""] : []),
      ...inside.flatMap((one, at) => [make("h2", null, opened[at]), table(path, columns, one[path], "Nothing in it.", sorting), make("div", { class: "pager" }, more(one))]));
    card.replaceChildren(table(path, columns, told[path], lines.length ? "Nothing but what sinks made." : none, sorting),
      make("div", { class: "pager" }, place.after ? step("", "First page") : null, told.next ? step(told.next, "Next page") : null, more(told)));
    return told;
  } };
}

views.topics = (given) => {
  frame("Topics");
  return listing("topics", given, "topics", [
    ["Topic", (row) => [link("topic", { name: row.name }, row.name), row.internal ? [" ", badge("internal")] : null], null, "name"],
    ["Partitions", (row) => whole(row.partitions), "n", "partitions"],
    ["Records", (row) => whole(row.records), "n", "records"],
    ["Held back", (row) => loss(row.held_back, whole), "n", "held_back"],
    ["Size", (row) => bytes(row.bytes), "n", "bytes"],
  ], "No topics, or none that you may describe.");
};

views.topic = (given) => {
  frame(given.name, make("span", { class: "note" }, link("topics", null, "All topics")));
  const card = slot();
  card.className = "card";
  return { every: 4000, async show() {
    const told = await ask("partitions", { topic: given.name });
    card.replaceChildren(table("partitions", [
      ["Partition", (row) => link("messages", { topic: given.name, partition: row.partition }, `Partition ${row.partition}`)],
      ["Log start", (row) => whole(row.start), "n"],
      ["Last stable", (row) => whole(row.stable), "n"],
      ["High watermark", (row) => whole(row.high_watermark), "n"],
      ["Held back", (row) => row.stable === null ? NOT_KNOWN : loss(row.high_watermark - row.stable, whole), "n"],
      ["Size", (row) => bytes(row.bytes), "n"],
    ], told.partitions, "No partitions."));
  } };
};

const STATES = { open: "warn", committed: "good", aborted: "bad", control: "control" };

function content(row, shown, field, given) {
  if (!shown) return make("span", { class: "soft" }, "null");
  const text = make("pre", { class: shown.as }, shown.data), parts = [text];
  if (shown.cut) {
    parts.push(make("button", { class: "more", async onclick(event) {
      try {
        const told = await ask("messages", { ...given, offset: row.offset, limit: 1, bytes: 65536 });
        text.textContent = told.records.find((one) => one.offset === row.offset)[field].data;
        event.target.remove();
      } catch (error) { tell(`Not shown: ${error.message}`); }
    } }, `more of ${bytes(shown.size)}`));
  }
  return parts;
}

views.messages = (given) => {
  const wish = { topic: given.topic, partition: given.partition || "0", isolation: given.isolation || "read_uncommitted", as: given.as || "auto", limit: given.limit || "50", offset: given.offset || "-1" };
  frame(`${wish.topic} · partition ${wish.partition}`, make("span", { class: "note" }, link("topic", { name: wish.topic }, "All partitions")));
  const go = (changed) => { location.hash = address("messages", { ...wish, ...changed }); };
  const levels = make("span", { class: "group", role: "group", "aria-label": "Isolation level" }, ["read_uncommitted", "read_committed"].map((level) =>
    make("button", { id: level, "aria-pressed": String(wish.isolation === level), onclick() { go({ isolation: level }); } }, level)));
  const form = make("select", { id: "as", onchange() { go({ as: form.value }); } },
    ["auto", "text", "json", "hex"].map((one) => make("option", { selected: one === wish.as }, one)));
  const at = make("input", { id: "offset", type: "number", min: "0", placeholder: "offset", "aria-label": "Offset",
    onkeydown(event) { if (event.key === "Enter" && at.value) go({ offset: at.value }); } });
  const steps = make("span", { class: "right" });
  byId("view").append(make("div", { class: "bar" }, levels, make("label", null, "as ", form), make("label", null, "from offset", at),
    make("button", { onclick() { refresh(); } }, "Refresh"), steps));
  const facts = make("p", { class: "note" }), card = make("section", { class: "card" });
  byId("view").append(facts, card);
  return { async show() {
    const told = await ask("messages", wish), older = Math.max(told.start, told.from - Number(wish.limit));
    const step = (text, offset, can) => make("button", { disabled: !can, onclick() { go({ offset }); } }, text);
    steps.replaceChildren(step("Oldest", told.start, told.from > told.start), step("Older", older, told.from > told.start),
      step("Newer", told.next, told.more), step("Newest", -1, told.more || wish.offset !== "-1"));
    facts.textContent = `Log start ${whole(told.start)} · last stable offset ${whole(told.stable)} · high watermark ${whole(told.high_watermark)}`
      + (told.isolation === "read_committed" ? " · as readers of committed data see it" : " · everything, with what became of each transaction");
    card.replaceChildren(table("records", [
      ["Offset", (row) => whole(row.offset), "n"],
      ["Time (UTC)", (row) => time(row.timestamp), "w"],
      ["Transaction", (row) => row.state === "none" ? make("span", { class: "soft" }, "none") : badge(row.state, STATES[row.state])],
      ["Producer", (row) => row.producer_id < 0 ? make("span", { class: "soft" }, "–") : `${row.producer_id} / ${row.epoch}`, "w"],
      ["Key", (row) => row.note ? null : content(row, row.key, "key", wish)],
      ["Value", (row) => row.note ? make("span", { class: "soft" }, row.note) : content(row, row.value, "value", wish)],
      ["Headers", (row) => row.note || !row.headers.length ? null : [make("pre", null, row.headers.map((one) => `${one.key}: ${one.value ? one.value.data : "null"}`).join("\n")),
        row.more_headers ? make("span", { class: "soft" }, `and ${row.more_headers} more`) : null]],
    ], told.records, told.more ? "Nothing that may be shown here; Newer goes on." : "No records here."));
  } };
};

const GROUP_STATES = { Stable: "good", Empty: "", Dead: "bad" };

views.groups = (given) => {
  frame("Groups");
  return listing("groups", given, "groups", [
    ["Group", (row) => link("group", { name: row.group }, row.group), null, "name"],
    ["State", (row) => badge(row.state, row.state in GROUP_STATES ? GROUP_STATES[row.state] : "warn"), null, "state"],
    ["Kind", (row) => row.type, "w", "type"],
    ["Partitions", (row) => whole(row.partitions), "n", "partitions"],
    ["Lag", (row) => loss(row.lag, whole), "n", "lag"],
  ], "No groups, or none that you may describe.", { sinks: [["Groups", (row) => whole(row.groups), "n"]] });
};

views.group = (given) => {
  frame(given.name, make("span", { class: "note" }, link("groups", null, "All groups")));
  const facts = slot(), members = slot(), offsets = slot();
  members.className = offsets.className = "card";
  return { every: 4000, async show() {
    const told = await ask("group", { group: given.name });
    facts.replaceChildren(make("div", { class: "bar" }, badge(told.state, told.state in GROUP_STATES ? GROUP_STATES[told.state] : "warn"),
      make("span", { class: "note" }, `${told.type} protocol`, told.assignor ? ` · ${told.assignor}` : "")));
    members.replaceChildren(make("h2", null, `Members (${whole(told.total_members)})`), table("members", [
      ["Client", (row) => [row.client, make("div", { class: "soft" }, row.member)]], ["Host", (row) => row.host, "w"],
      ["Instance", (row) => row.instance || NOT_KNOWN], ["Reads", (row) => row.assigned > row.partitions.length ? `${row.partitions.join(", ")} … (${row.assigned})` : row.partitions.join(", ")],
    ], told.members, "No members."));
    offsets.replaceChildren(make("h2", null, `Offsets (${whole(told.total_offsets)})`), table("offsets", [
      ["Partition", (row) => link("messages", { topic: row.topic, partition: row.partition }, `${row.topic}-${row.partition}`)],
      ["Committed", (row) => whole(row.committed), "n"], ["End", (row) => whole(row.end), "n"],
      ["Lag", (row) => row.lag === null ? NOT_KNOWN : loss(row.lag, whole), "n"], ["Read by", (row) => row.client || NOT_KNOWN],
    ], told.offsets, "Nothing committed."));
  } };
};

const TRANSACTION_STATES = { Ongoing: "warn", PrepareCommit: "warn", PrepareAbort: "warn", CompleteCommit: "good", CompleteAbort: "bad" };

async function abort(path, title, text, given) {
  if (!await confirmed(title, text.map((line) => make("p", null, line)), "Abort")) return;
  try {
    const done = await ask(path, given, true);
    tell(`${title.replace(/^Abort /, "").replace("?", "")}: ${done.state}`);
  } catch (error) { tell(`Not aborted: ${error.message}`); }
  refresh();
}

views.transactions = (given) => {
  frame("Transactions", about.writable ? null : make("span", { class: "note" }, "read-only console"));
  const state = given.state || "open";
  const kinds = make("span", { class: "group", role: "group", "aria-label": "Which" }, [["open", "Open"], ["all", "All"]].map(([name, text]) =>
    make("button", { id: `state-${name}`, "aria-pressed": String(state === name), onclick() { location.hash = address("transactions", { state: name }); } }, text)));
  const action = (row) => row.abortable ? make("button", { class: "act", onclick() {
    abort("transactions/abort", `Abort ${row.transactional_id}?`, ["What it wrote is hidden from readers of committed data, and its producer is fenced: it has to begin anew."],
      { transactional_id: row.transactional_id, producer_id: row.producer_id, epoch: row.epoch, started_ms: row.started_ms });
  } }, "Abort") : row.open ? make("span", { class: "soft" }, row.why_not) : null;
  const places = (row) => row.total_partitions > row.partitions.length ? `${row.partitions.join(", ")} … (${row.total_partitions})` : row.partitions.join(", ");
  const list = listing("transactions", given, "transactions", [
    ["Transactional id", (row) => row.transactional_id, null, "name"],
    ["State", (row) => badge(row.state, TRANSACTION_STATES[row.state]), null, "state"],
    ["Producer", (row) => `${row.producer_id} / ${row.epoch}`, "w"],
    ["Age", (row) => duration(row.age_ms), "n", "age"],
    ["Time-out", (row) => row.timeout_ms === 2147483647 ? "never" : duration(row.timeout_ms), "n"],
    ["Partitions", places],
    ["", action, "why"],
  ], state === "open" ? "No open transactions." : "No transactional ids, or none that you may describe.", { extra: [kinds], wanted: { state }, sinks: [
    ["Ids", (row) => whole(row.ids), "n"], ["Open", (row) => loss(row.open, whole), "n"], ["Oldest", (row) => duration(row.age_ms), "n"],
  ] });
  const card = make("section", { class: "card", hidden: true, id: "hanging" });
  byId("view").append(card);
  return { every: 4000, async show() {
    await list.show();
    const told = await ask("hanging");
    card.hidden = !told.hanging.length;
    card.replaceChildren(make("h2", null, "Hanging on a partition"), make("p", { class: "lead" }, "Open transactions that hold back readers and that no coordinator will end (KIP-664)."), table("hanging", [
      ["Partition", (row) => link("messages", { topic: row.topic, partition: row.partition, offset: row.start_offset }, `${row.topic}-${row.partition}`)],
      ["Producer", (row) => `${row.producer_id} / ${row.epoch}`, "w"], ["From offset", (row) => whole(row.start_offset), "n"], ["Last write", (row) => `${duration(row.age_ms)} ago`, "n"],
      ["", (row) => row.abortable ? make("button", { class: "act", onclick() {
        abort("hanging/abort", `Abort the transaction on ${row.topic}-${row.partition}?`, ["An abort marker is written to this partition. What the transaction wrote there is hidden from readers of committed data."],
          { topic: row.topic, partition: row.partition, producer_id: row.producer_id, start_offset: row.start_offset });
      } }, "Abort") : null, "why"],
    ], told.hanging, ""));
  } };
};

// --- going from view to view

let current = null, timer = 0, turn = 0;

function replaceAddress(view, given) {
  history.replaceState(null, "", address(view, Object.fromEntries(Object.entries(given).filter(([, value]) => value))));
}

async function refresh() {
  clearTimeout(timer);
  const mine = turn += 1, view = current;
  try {
    if (!document.hidden) await view.show();
    byId("trouble").hidden = true;
  } catch (error) {
    const text = error instanceof TypeError ? `The broker does not answer (${error.message})` : error.message;
    Object.assign(byId("trouble"), { textContent: text, hidden: false });
  }
  if (mine === turn && view.every) timer = setTimeout(refresh, view.every);
}

function route() {
  const [name, query] = location.hash.replace(/^#\//, "").split("?");
  const known = Object.hasOwn(views, name) ? name : "overview", tab = { topic: "topics", messages: "topics", group: "groups" }[known] || known;
  for (const one of document.querySelectorAll("nav a")) one.toggleAttribute("aria-current", one.hash === `#/${tab}`);
  current = views[known](Object.fromEntries(new URLSearchParams(query || "")));
  refresh();
}

async function begin() {
  try {
    about = await ask("about");
  } catch (error) {
    Object.assign(byId("trouble"), { textContent: error.message, hidden: false });
    return void setTimeout(begin, 3000);
  }
  byId("trouble").hidden = true;
  byId("about").textContent = `${about.user.replace(/^User:/, "")} · cluster ${about.cluster_id} · ${about.version}${about.writable ? "" : " · read-only"}`;
  window.addEventListener("hashchange", route);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  route();
}

begin();
