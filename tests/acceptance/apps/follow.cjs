// Follow the stream of argv[2] with the npm package eventsource, which never closes it of its own will; print each
// event as a line of JSON, and end when the package has given up.
const { EventSource } = require("eventsource");

const source = new EventSource(process.argv[2]);
const tell = (event) => console.log(JSON.stringify([event.type, event.lastEventId, event.data]));
for (const name of ["message", "status", "progress", "complete", "failed", "cancelled"]) {
  source.addEventListener(name, tell);
}
source.onerror = () => {
  if (source.readyState === EventSource.CLOSED) process.exit();
};
