// Submits the job, follows it by its event stream and its log, and polls where a stream is refused. The job's id is the
// fragment of the address, so that a reload or a second window goes on with the same job.

const TERMINAL = { complete: "COMPLETED", failed: "FAILED", cancelled: "CANCELLED" };
const WORDS = {
  PENDING: "Waiting for its turn",
  PROCESSING: "Evaluating",
  COMPLETED: "All accounts are evaluated",
  FAILED: "Failed",
  CANCELLED: "Cancelled",
};

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((element) => [element.id, element]));
const pause = (seconds) => new Promise((go) => setTimeout(go, 1000 * seconds));
const retryAfter = (answer) => Number(answer?.headers.get("Retry-After")) || 5;

/** The run that the page shows. */
let current = null;

class Run {
  constructor(id) {
    this.id = id;
    this.isOver = false;
    this.lastLine = 0;
    this.sources = [];
  }

  follow() {
    show({ status: "PENDING", percentComplete: null });
    tell("reconnecting", "connecting");
    const told = (event) => {
      tell("live");
      show(JSON.parse(event.data));
    };
    const ended = (event) => this.end({ ...JSON.parse(event.data), status: TERMINAL[event.type] });
    const listeners = { status: told, progress: told };
    for (const name of Object.keys(TERMINAL)) listeners[name] = ended;
    this.events = this.listen(`jobs/${this.id}/events`, listeners, () => this.poll());
    this.events.addEventListener("error", () => {
      if (this.events.readyState === EventSource.CONNECTING) tell("reconnecting");
    });
    this.followLog();
  }

  /** From the first line. A browser that reconnects sends the id of the last line that it has. */
  followLog() {
    const url = `jobs/${this.id}/log?lastEventId=0`;
    const line = (event) => this.addLine({ id: event.lastEventId, ...JSON.parse(event.data) });
    this.listen(url, { progress: line, result: (event) => event.target.close() }, () => this.readLog());
  }

  /** Open a stream. A browser reconnects by itself; CLOSED means that it was refused: 404, 429, 503. */
  listen(url, listeners, refused) {
    const source = new EventSource(url);
    this.sources.push(source);
    for (const [name, listener] of Object.entries(listeners)) source.addEventListener(name, listener);
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) refused();
    });
    return source;
  }

  /** Ask for the status, as often as the server wants to be asked. */
  async poll() {
    while (!this.isOver && this === current) {
      const answer = await fetch(`jobs/${this.id}/status`).catch(() => null);
      if (this.isOver || this !== current) return;
      if (answer?.status === 404) return this.end({ status: "FAILED", title: "There is no such job." });
      if (answer?.ok || answer?.status === 422) {
        const body = await answer.json();
        const state = { ...body, status: body.jobStatus ?? body.status };
        if (Object.values(TERMINAL).includes(state.status)) return this.end(state);
        show(state);
      }
      const seconds = retryAfter(answer);
      tell("polling", answer ? `polling every ${seconds} s` : "the server cannot be reached");
      await pause(seconds);
    }
  }

  /** Read the log in pages, until the job has ended and nothing is left. */
  async readLog() {
    while (this === current) {
      const url = `jobs/${this.id}/log?after=${this.lastLine}`;
      const answer = await fetch(url, { headers: { Accept: "application/json" } }).catch(() => null);
      if (this !== current || answer?.status === 404) return;
      const { lines, nextAfter } = answer?.ok ? await answer.json() : { lines: [] };
      for (const line of lines) this.addLine(line);
      if (nextAfter === null) return;
      if (!lines.length) await pause(retryAfter(answer));
    }
  }

  addLine({ id, line, at }) {
    const isAtEnd = page.lines.scrollTop + page.lines.clientHeight >= page.lines.scrollHeight - 4;
    const item = document.createElement("li");
    const time = document.createElement("time");
    time.dateTime = at;
    time.textContent = new Date(at).toLocaleTimeString("en-GB");
    item.append(time, line);
    page.lines.append(item);
    page.log.hidden = false;
    this.lastLine = Number(id);
    if (isAtEnd) page.lines.scrollTop = page.lines.scrollHeight;
  }

  async cancel() {
    page.cancel.disabled = true;
    const answer = await fetch(`jobs/${this.id}`, { method: "DELETE" }).catch(() => null);
    if (this !== current) return;
    if (answer?.status === 202) this.end(await answer.json());
    else if (answer?.status !== 409) page.cancel.disabled = false; // 409: it has just ended, and that is told
  }

  end(state) {
    this.isOver = true;
    this.events.close(); // the log goes on to its last line
    tell("");
    show(state.status === "COMPLETED" ? { ...state, percentComplete: 100 } : state);
    if (state.status === "COMPLETED") showOutcome();
  }

  leave() {
    for (const source of this.sources) source.close();
  }
}

function follow(id) {
  current?.leave();
  current = null;
  page.job.hidden = !id;
  page.log.hidden = page.outcome.hidden = true;
  page.lines.replaceChildren();
  if (!id) return;
  current = new Run(id);
  current.follow();
}

/** Submit, as often as it takes: the key makes sure that all tries are one job. */
async function submit() {
  const headers = { "Idempotency-Key": crypto.randomUUID() };
  if (page.anew.checked) headers["Cache-Control"] = "no-cache";
  const post = () => fetch("jobs/accounts", { method: "POST", headers }).catch(() => null);
  page.submit.disabled = true;
  let answer = await post();
  while (!answer || answer.status === 429 || answer.status >= 500) {
    await pause(retryAfter(answer));
    answer = await post();
  }
  page.submit.disabled = false;
  const body = await answer.json();
  if (answer.status !== 202) return alert(body.title);
  history.replaceState(null, "", `#${body.jobId}`);
  follow(body.jobId);
}

function show({ status, percentComplete, title, detail }) {
  const active = status === "PENDING" || status === "PROCESSING";
  page.job.dataset.status = status;
  page.state.textContent = (status === "FAILED" && title) || WORDS[status];
  page.detail.textContent = detail ?? `Job ${current.id}`;
  page.progress.value = percentComplete ?? 0;
  page.percent.textContent = percentComplete === null ? "" : `${percentComplete} %`;
  page.cancel.disabled = !active;
}

function tell(link, words = link) {
  page.link.dataset.link = link;
  page.link.textContent = words;
}

async function showOutcome() {
  const answer = await fetch("accounts?eligible=true&limit=5").catch(() => null);
  if (!answer?.ok) return;
  const { accounts } = await answer.json();
  const money = new Intl.NumberFormat("en", { minimumFractionDigits: 2 });
  page.accounts.replaceChildren(
    ...accounts.map((account) => {
      const cells = [account.id, account.segment, account.creditScore, money.format(account.balanceCents / 100)];
      const row = document.createElement("tr");
      for (const cell of cells) row.insertCell().textContent = cell;
      for (const cell of [...row.cells].slice(2)) cell.className = "number";
      return row;
    }),
  );
  page.outcome.hidden = false;
}

page.form.addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
page.cancel.addEventListener("click", () => current?.cancel());
addEventListener("hashchange", () => follow(location.hash.slice(1)));
follow(location.hash.slice(1));
