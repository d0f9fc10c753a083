// Sends a catalogue as a batch, follows it, and shows what comes out. Nothing but the browser is needed.

import { ask, follow, items, newKey, Refused } from "./batches.js";

const part = Object.fromEntries([...document.querySelectorAll("[id]")].map((element) => [element.id, element]));
const shown = new Map(); // the newest item of each listing

part.file.addEventListener("change", async () => {
  if (part.file.files.length) part.catalogue.value = await part.file.files[0].text();
  part.file.value = "";
});

part.form.addEventListener("submit", (event) => {
  event.preventDefault();
  run(async () => {
    const listings = listingsOf(part.catalogue.value);
    shown.clear();
    await review(listings, []);
  });
});

part.again.addEventListener("click", () => run(async () => {
  const failed = new Set(failedOnes());
  const listings = listingsOf(part.catalogue.value).filter(([sku]) => failed.has(sku));
  if (!listings.length) throw new Refused("None of the listings that failed stands in the catalogue above.");
  await review(listings, known());
}));

// The address holds the batches, so that a page opened again shows them.
if (known().length) run(async () => {
  for (const id of known()) await watch(id);
});

function known() {
  return location.hash.slice(1).split(",").filter(Boolean);
}

/** Does one thing at a time, and says what went wrong. */
async function run(work) {
  busy(true);
  tell("");
  try {
    await work();
  } catch (error) {
    tell(error instanceof Refused ? error.message : `Something went wrong: ${error.message}`);
  }
  busy(false);
}

async function review(listings, before) {
  const parts = listings.map(([sku, text]) => `{"itemId": ${JSON.stringify(sku)}, "payload": ${text}}`);
  const accepted = await ask("batches/review", {
    method: "POST",
    headers: { "Content-Type": "application/json", "Idempotency-Key": newKey() },
    body: `{"items": [${parts.join(", ")}]}`,
  }, listings.map(([sku]) => sku));
  history.replaceState(null, "", `#${[...before, accepted.batchId].join(",")}`);
  await watch(accepted.batchId);
}

/** Shows a batch until it has ended; its items are read again whenever the counts have changed. */
async function watch(id) {
  let newest;
  let reading = Promise.resolve();
  const refresh = async () => {
    for await (const item of items(id)) shown.set(item.itemId, item);
    draw();
  };
  await follow(id, (counts) => {
    progress(counts);
    newest = counts;
    reading = reading.then(() => counts === newest && refresh());
  });
  await reading;
}

function progress(counts) {
  const ended = counts.completed + counts.failed + counts.cancelled;
  part.batch.hidden = false;
  part.progress.max = counts.total;
  part.progress.value = ended;
  part.state.textContent = counts.status === "COMPLETED" ? "Done" : "Being reviewed";
  const failed = counts.failed + counts.cancelled;
  part.count.textContent = `${ended} of ${counts.total}` + (failed ? `, ${failed} failed` : "");
}

function draw() {
  part.items.replaceChildren(...[...shown.values()].map(row));
}

function row(item) {
  const review = item.result;
  const listing = element("td", {}, item.itemId, review && element("small", {}, review.suggestedTitle));
  if (review) {
    const found = review.findings.map((finding) => element("li", {}, finding.message));
    const score = element("td", { className: `score ${review.score >= 70 ? "good" : "bad"}` }, String(review.score));
    const findings = found.length ? element("ul", {}, ...found) : element("span", { className: "waiting" }, "Nothing");
    return element("tr", {}, listing, score, element("td", {}, findings));
  }
  const failed = item.error || item.status === "CANCELLED";
  const score = element("td", { className: failed ? "score bad" : "score waiting" }, failed ? "–" : "…");
  const error = item.error && element("small", {}, item.error.code);
  const text = element("td", { className: failed ? "bad" : "waiting" }, item.error?.title ?? words[item.status], error);
  return element("tr", {}, listing, score, text);
}

const words = { PENDING: "Waiting", PROCESSING: "Being reviewed", CANCELLED: "Cancelled", COMPLETED: "Reviewed" };

function element(name, members, ...children) {
  const made = Object.assign(document.createElement(name), members);
  made.append(...children.filter(Boolean));
  return made;
}

function failedOnes() {
  return [...shown.values()].filter((item) => item.error || item.status === "CANCELLED").map((item) => item.itemId);
}

function busy(yes) {
  part.submit.disabled = part.again.disabled = yes;
  part.again.hidden = !failedOnes().length;
}

function tell(text) {
  part.trouble.textContent = text;
  part.trouble.hidden = !text;
}

/** The SKU and the text of each listing, as it stands in the catalogue: parsed and written again, 45.00 is 45. */
function listingsOf(text) {
  let listings;
  try {
    listings = JSON.parse(text);
  } catch (error) {
    throw new Refused(`The catalogue is no JSON: ${error.message}`);
  }
  if (!Array.isArray(listings) || !listings.length) throw new Refused("The catalogue is no list of listings.");
  const texts = split(text.trim().slice(1, -1));
  return listings.map((listing, index) => [String(listing?.sku ?? ""), texts[index]]);
}

/** Splits JSON text at the commas that stand in no string, list or object. */
function split(text) {
  const parts = [];
  let depth = 0;
  let start = 0;
  for (const { 0: token, index } of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{},]/g)) {
    if (token === "[" || token === "{") depth += 1;
    if (token === "]" || token === "}") depth -= 1;
    if (token !== "," || depth) continue;
    parts.push(text.slice(start, index));
    start = index + 1;
  }
  return [...parts, text.slice(start)];
}
