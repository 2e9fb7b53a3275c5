import {a, ask, button, content, count, empty, facts, field, filled, get, h, head, known, link, mark, mayPause, me, pane, pill, plural, put, remove, sentence, table, time, toast} from "../ui.js"
import {resumeScope} from "../actions.js"

export const noWorker = () => empty("No worker is running", "Jobs are kept until one starts.", {command: "penstock worker"})

export function open({read}) {
	const stats = read("stats", () => get("/queue/stats"), 2000)
	const keyed = read("limits", async () => me.tenants.includes("*") ? get("/limits") : {}, 2000)
	const timer = setInterval(() => [stats, keyed].forEach(one => one.refresh()), 5000)
	const setLimit = async ({dataset: {key, concurrent, rate}}) => {
		const made = await ask({title: key ? `Change the limit ${key}` : "Set a limit", words: "It counts on all hosts and for all tenants. Waiting jobs go as it allows; running jobs go on.",
			body: h("div.fields", !key && field("key", "Key", "", {required: true, autofocus: true, placeholder: "embeddings"}),
				field("concurrent", "Jobs at once, if limited", concurrent, {type: "number", min: 1, autofocus: Boolean(key)}), field("rate", "Starts in a period, if limited", rate, {placeholder: "60/min"})),
			yes: "Set limit", submit: form => {
				const {key: name = key, concurrent: most, ...body} = filled(form)
				return put(`/limits/${encodeURIComponent(name)}`, most ? {...body, concurrent: Number(most)} : body)
			}})
		if (made) keyed.hurry(toast("Limit set.", made.key))
	}
	return {
		close: () => clearInterval(timer),
		hear: () => stats.refresh(),
		acts: {
			"set-limit": setLimit,
			"remove-limit": async ({dataset: {key}}) => await ask({title: `Remove the limit ${key}?`, words: "Jobs that wait for it can start, all of them.", yes: "Remove limit", no: "Keep it", danger: true,
				submit: () => remove(`/limits/${encodeURIComponent(key)}`)}) && keyed.hurry(),
			resume: async ({dataset}) => stats.hurry(await resumeScope(dataset.tenant, dataset.collection)),
		},
		view: () => h("div.wrap", head("Workers"), content(stats, ({workers, breakers, paused, limits}) => h("div.columns",
			h("div.stack", pane("Living workers", {}, workers?.length ? workerTable(workers) : workers ? noWorker() : empty("Not for this key", "Keys bound to tenants do not see the workers.")), content(keyed, keyedPane)),
			h("div.stack", breakers && servicesPane(breakers), pausedPane(paused), pane("Pending jobs", {sub: "more is refused with 429"},
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

const keyedPane = found => found.limits && pane("Limits by key", {end: mayPause() && button("Set limit", "set-limit", {kind: "small", image: "plus"})}, found.limits.length
	? table("limits", [
		["Key", one => [h("b.path", one.key), h("span.sub2", one.next_at && Date.parse(one.next_at) > Date.now() ? ["next start ", time(one.next_at)] : "may start now")], "wide"],
		["At once", one => known(one.concurrent) ? count(one.concurrent) : "any", "num"], ["Rate", one => one.rate ?? "any", "num"],
		["Slots taken", one => count(one.slots), "num"], ["Waiting", one => one.waiting ? a(link(["jobs"], {held: "limit"}), count(one.waiting)) : "0", "num"],
		mayPause() && [".Actions", one => h("div.acts", [["Change", "set-limit"], ["Remove", "remove-limit"]].map(([words, act]) =>
			button(words, act, {kind: "small", "data-key": one.key, "data-concurrent": one.concurrent, "data-rate": one.rate, label: `${words} ${one.key}`}))), "fit"],
	], found.limits, one => one.key)
	: empty("No limits", "A limit says how many jobs of a key run at once or start in a period.", {command: "penstock limit set embeddings --rate 60/min"}))

const servicesPane = breakers => pane("Services", {sub: "a breaker stops calls to one that is down"}, breakers.length
	? names(breakers, one => one.name, one => [sentence(one.reason), one.until && [" Next try ", time(one.until)]], one => (one.state === "open" ? pill("failed", "down") : one.state === "closed" ? pill("done", "answers") : pill("held", "being tried")))
	: empty("No breaker is open", "Every service that was called answers."))

const pausedPane = paused => pane("Paused", {}, paused.length
	? names(paused, one => one.tenant_id === "*" ? "all tenants" : one.tenant_id, one => one.collection === "*" ? "all collections" : one.collection,
		one => mayPause() && button("Resume", "resume", {kind: "small", image: "play", "data-tenant": one.tenant_id, "data-collection": one.collection}))
	: empty("Nothing is paused", "Every tenant takes its turn.", {command: "penstock pause --tenant NAME"}))
