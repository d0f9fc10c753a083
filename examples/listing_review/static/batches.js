// A client of batches for browsers: submit, follow by events or by polling, read the items.

const TRIES = 8;
const FIRST_PAUSE = 1;
const LONGEST_PAUSE = 5;
const GROWTH = 1.5;
const PAGE = 100;
const LOST_STREAMS = 2;

/** The server does not take a request, and would not take it later. */
export class Refused extends Error {}

/** A key that is new for each submission and the same for each try of it. */
export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Returns the JSON of an answer; asks again, as often as is sensible, where there is none or it says later. */
export async function ask(url, options = {}, names = []) {
  return (await answer(url, options, names)).json();
}

/**
 * Calls `tell` with the counts of a batch, now and after each change, until it has ended.
 * By the event stream; where that cannot be had, by polling less and less often.
 */
export async function follow(id, tell) {
  if (!(await stream(id, tell))) await poll(id, tell);
}

/** Yields the items of a batch in the order in which they were submitted. */
export async function* items(id) {
  for (let after = 0; after !== null; ) {
    const page = await ask(`batches/${id}/items?after=${after}&limit=${PAGE}`);
    yield* page.items;
    after = page.nextAfter;
  }
}

function stream(id, tell) {
  return new Promise((resolve) => {
    const source = new EventSource(`batches/${id}/events`);
    let lost = 0;
    const stop = (ended) => {
      source.close();
      resolve(ended);
    };
    source.addEventListener("progress", (event) => {
      lost = 0;
      tell(JSON.parse(event.data));
    });
    source.addEventListener("complete", (event) => {
      tell(JSON.parse(event.data));
      stop(true);
    });
    source.addEventListener("error", () => {
      lost += 1;
      if (source.readyState === EventSource.CLOSED || lost > LOST_STREAMS) stop(false);
    });
  });
}

async function poll(id, tell) {
  for (let pause = FIRST_PAUSE; ; pause = Math.min(pause * GROWTH, LONGEST_PAUSE)) {
    const response = await answer(`batches/${id}`);
    const summary = await response.json();
    tell(summary);
    if (summary.status === "COMPLETED") return;
    await wait(Math.max(pause, retryAfter(response)));
  }
}

async function answer(url, options, names) {
  for (let left = TRIES - 1; ; left -= 1) {
    const response = await fetch(url, options).catch(() => null);
    if (response?.ok) return response;
    if (response && response.status !== 429 && response.status !== 503) throw await refusal(response, names);
    if (!left) throw new Refused("The server does not answer; try again later.");
    await wait(response ? Math.max(FIRST_PAUSE, retryAfter(response)) : FIRST_PAUSE);
  }
}

function retryAfter(response) {
  return Number(response.headers.get("Retry-After")) || 0;
}

function wait(seconds) {
  return new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
}

async function refusal(response, names = []) {
  const problem = await response.json().catch(() => ({}));
  const lines = [problem.detail ?? `The server answered ${response.status}.`];
  for (const [path, message] of messages(problem.errors)) {
    const [first, index, ...rest] = path;
    const place = first === "items" && names[index] ? [names[index], ...rest] : path;
    lines.push(`${place.join(" › ")}: ${message}`);
  }
  return new Refused(lines.join("\n"));
}

/** Yields the place and the text of each message in the errors of a problem. */
function* messages(errors, path = []) {
  if (typeof errors === "string") yield [path, errors];
  else if (Array.isArray(errors)) for (const each of errors) yield* messages(each, path);
  else for (const [name, value] of Object.entries(errors ?? {})) yield* messages(value, [...path, name]);
}
