import {button, content, count, empty, facts, get, h, head, known, mark, mayPause, pane, pill, plural, sentence, table, time} from "../ui.js"
import {resumeScope} from "../actions.js"

export const noWorker = () => empty("No worker is running", "Jobs are kept until one starts.", {command: "penstock worker"})

export function open({read}) {
	const stats = read("stats", () => get("/queue/stats"), 2000)
	const timer = setInterval(() => stats.refresh(), 5000)
	return {
		close: () => clearInterval(timer),
		hear: () => stats.refresh(),
		acts: {resume: async ({dataset}) => stats.hurry(await resumeScope(dataset.tenant, dataset.collection))},
		view: () => h("div.wrap", head("Workers"), content(stats, ({workers, breakers, paused, limits}) => h("div.columns",
			h("div.stack", pane("Living workers", {}, workers?.length ? workerTable(workers) : workers ? noWorker() : empty("Not for this key", "Keys bound to tenants do not see the workers."))),
			h("div.stack", breakers && servicesPane(breakers), pausedPane(paused), pane("Limits", {sub: "more is refused with 429"},
				facts(Object.entries(limits).map(([name, limit]) => [sentence(name.replaceAll("_", " ")), limit ?? "none"]))))))),
	}
}

const names = (list, name, sub, state) => table("names", [["Name", one => [h("b", name(one)), h("span.sub2", sub(one))], "wide"], [".State", state, "fit"]], list, name)

export const workerTable = (workers, small = false) => table("workers", [
	["Worker", one => [h("span.path", one.host, h("span.muted", ` ${one.pid}`)), h("span.sub2", one.lanes?.join(", ") ?? one.worker_id)], "wide"],
	["Slots", one => known(one.slots) ? `${count(one.running)} of ${count(one.slots)} slots` : plural(one.processes, "process", "processes"), "num muted"],
	!small && ["Started", one => time(one.started_at), "muted"],
	["Heard of", one => one.state === "lost" ? mark("failed", "lost") : one.state === "paused" ? mark("held", "paused") : mark("done", one.heartbeat_at ? time(one.heartbeat_at) : "alive"), "fit"],
], workers, one => one.worker_id)

const servicesPane = breakers => pane("Services", {sub: "a breaker stops calls to one that is down"}, breakers.length
	? names(breakers, one => one.name, one => [sentence(one.reason), one.until && [" Next try ", time(one.until)]], one => (one.state === "open" ? pill("failed", "down") : one.state === "closed" ? pill("done", "answers") : pill("held", "being tried")))
	: empty("No breaker is open", "Every service that was called answers."))

const pausedPane = paused => pane("Paused", {}, paused.length
	? names(paused, one => one.tenant_id === "*" ? "all tenants" : one.tenant_id, one => one.collection === "*" ? "all collections" : one.collection,
		one => mayPause() && button("Resume", "resume", {kind: "small", image: "play", "data-tenant": one.tenant_id, "data-collection": one.collection}))
	: empty("Nothing is paused", "Every tenant takes its turn.", {command: "penstock pause --tenant NAME"}))
