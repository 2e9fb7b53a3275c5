import {a, button, clock, content, count, duration, empty, get, h, icon, known, mayPause, nothingYet, num, pane, perMinute, plural, scroller, sentence, steady, table, tenantColumn, timeLeft, writeButtons} from "../ui.js"
import * as actions from "../actions.js"
import {lastHour, tank} from "../charts.js"
import {jobActs, jobButton, jobName, leftCell, progressCell} from "../job_parts.js"
import {List} from "../list.js"
import {failureRows, nothingFailed} from "./failures.js"
import {noWorker, workerTable} from "./workers.js"

const LANES = {jobs: "files and notes", ocr: "pages to text", vector: "chunks to vectors", graphrag: "chunks to entities"}

export function open({read, reasons}) {
	const stats = read("stats", () => get("/queue/stats"))
	const status = read("status", () => get("/health/status"), 2000)
	const hour = read("hour", () => get("/queue/history", {window: "1h", step: "60s"}), 15000)
	const list = new List("now", job => job.job_id)
	const running = read("running", async () => {
		const page = await get("/index/jobs/", {status: "running", limit: 8})
		list.take(page.jobs, page)
		return page
	})
	const timer = setInterval(() => hour.refresh(), 30000)
	let asTable = false
	return {
		close: () => clearInterval(timer),
		hear(kind, data) {
			if (kind === "lane" && stats.value?.lanes) stats.value.lanes = stats.value.lanes.map(lane => (lane.lane === data.lane ? {...lane, ...data} : lane))
			if (kind === "job" && (!list.merge(data.job_id, data) || data.status !== "running")) running.refresh()
			if (kind === "job") stats.refresh()
			status.refresh()
		},
		acts: {
			...jobActs(id => list.rows.find(job => job.job_id === id), () => running.hurry()),
			"retry-group": ({dataset}) => actions.retryGroup(dataset.reason, reasons),
			pause: async () => (await actions.pauseQueue()) && stats.hurry(),
			resume: async () => stats.hurry(await actions.resumeScope("*", "*")),
			"as-table": () => { asTable = !asTable; },
		},
		view() {
			const jobs = stats.value?.by_status
			const first = jobs && !jobs.pending && !jobs.running && !jobs.failed && status.value?.store.documents === 0
			return [
				h("div.band", h("div.wrap", say(stats, status.value, reasons.value), band(stats.value, status.value, hour.value))),
				h("div.wrap", first ? pane("Start", {}, nothingYet()) : h("div.columns",
					h("div.stack", runningPane(running, list), hourPane(hour, asTable)),
					h("div.stack", failuresPane(reasons), workersPane(stats)))),
			]
		},
	}
}

const isPaused = stats => stats?.paused.some(scope => scope.tenant_id === "*" && scope.collection === "*")

function sentenceOf({error, value}, status) {
	if (error) return [error.code ? "Store does not answer." : "The server does not answer."]
	if (!value) return ["Reading…"]
	const {workers, by_status: jobs, breakers, lanes} = value
	const open = jobs.pending + jobs.running
	if (workers?.length === 0 && open) return ["No worker is running."]
	if (isPaused(value)) return ["Paused."]
	const broken = breakers?.find(one => one.state === "open")
	if (broken && open) return [`Blocked: ${broken.name} is down.`]
	if (!open) return [`All done. ${status ? `${plural(status.store.documents, "document")} searchable.` : ""}`]
	// Entities do not hold up search.
	const left = (lanes ?? []).filter(lane => lane.lane !== "graphrag" && lane.waiting + lane.running > 0).map(lane => lane.time_left_s)
	if (!left.length || !left.every(known)) return ["Flowing. Time until everything asked is searchable: unknown."]
	return ["Flowing. ", sentence(steady("all", timeLeft(Math.max(...left)))), " until everything asked is searchable."]
}

function say(stats, status, failures) {
	const [start, figure, end] = sentenceOf(stats, status)
	const {by_status: jobs, oldest_pending_age_s: oldest, warnings} = stats.value ?? {}
	return h("div.say", h("div", h("h1", start, figure && h("b", figure), end),
		jobs && h("p", `${plural(jobs.pending, "job")} ${jobs.pending === 1 ? "waits" : "wait"}, ${count(jobs.running)} ${jobs.running === 1 ? "runs" : "run"}. `,
			failures?.total > 0 && [a("#/failures", `${count(failures.total)} failed for ${plural(failures.groups.length, "reason")}`), ". "],
			known(oldest) && jobs.pending > 0 && `Oldest waits ${duration(oldest * 1000)}.`),
		stats.error && h("p", `${stats.error.message}. ${stats.error.remedy}`),
		warnings?.map(words => h("p", icon("failures"), " ", words))),
	h("div.acts", mayPause() && (isPaused(stats.value) ? button("Resume queue", "resume", {image: "play"}) : button("Pause queue", "pause", {image: "pause"})), writeButtons()))
}

const minutes = lane => known(lane.time_left_s) ? lane.time_left_s / 60 : lane.waiting ? null : 0

function band(stats, status, hour) {
	const lanes = (stats?.lanes ?? []).filter(lane => lane.lane in LANES)
	const past = Object.fromEntries((hour?.lanes ?? []).map(lane => [lane.lane, lane]))
	const max = 1.1 * Math.max(1, ...lanes.map(minutes), ...Object.values(past).flatMap(lane => lane.minutes_waiting))
	const slowest = lanes.filter(lane => minutes(lane) > 1).sort((one, two) => minutes(two) - minutes(one))[0]
	const store = status?.store
	return [
		h("div.flow", lanes.map(lane => laneView(lane, past[lane.lane], max, lane === slowest)),
			h("section.out", {key: "out", label: "Searchable"}, h("h2", "searchable"), h("div.figure", num(store?.documents)),
				store && h("p", `${store.documents === 1 ? "document" : "documents"}, ${plural(store.chunks, "chunk")}`), store?.failed > 0 && h("p", `${plural(store.failed, "document")} failed`))),
		lanes.length > 0 && h("p.caption", "Height: minutes of work waiting, one scale for all lanes, last hour. Pipe: thick near the best rate, thin below, dashed when dry."),
	]
}

function laneView(lane, past, max, slowest) {
	const words = timeLeft(lane.time_left_s).replace("about ", "")
	const idle = !lane.waiting && !lane.running
	return h("section.lane", {key: lane.lane, label: `Lane ${lane.lane}`},
		h("h2", lane.lane, h("span", LANES[lane.lane]), slowest && h("em", "slowest")),
		tank([...(past?.minutes_waiting ?? []), minutes(lane)], max, `${lane.lane}: work waiting over the last hour, now ${idle ? "none" : words}`),
		h("div.lane-row", h("span", h("b", num(lane.waiting)), " waiting"), h("span.num", known(lane.rate) ? perMinute(lane.rate) : "rate unknown"),
			h("b.num", idle ? "idle" : steady(`lane-${lane.lane}`, words))),
		slots(lane), h("i.pipe", {class: flow(lane, past)}))
}

function flow(lane, past) {
	const rate = (lane.rate ?? 0) * 60
	if (!rate && !lane.running) return "dry"
	return rate >= Math.max(rate, ...(past?.done ?? [])) * (2 / 3) ? "" : "thin"
}

function slots({lane, slots: number, running, held, waiting}) {
	if (number === 0) return h("div.slots", `no worker takes ${lane}${waiting ? ", its work waits" : ""}`)
	const drawn = Math.min(number ?? 0, 16)
	const busy = Math.round((Math.min(running / number, 1) || 0) * drawn)
	return h("div.slots", Array.from({length: drawn}, (_, index) => h("i", {class: index < busy ? "on" : ""})),
		h("span", known(number) ? `${count(Math.min(running, number))} of ${count(number)} slots busy` : `${count(running)} running`, held ? `, ${count(held)} held` : ""))
}

const runningPane = (running, list) => pane("Running now", {sub: list.total > list.rows.length && `${count(list.total)} jobs, the newest ${list.rows.length} shown`, end: a("#/jobs", "All jobs")},
	content(running, () => (list.rows.length ? table("now", [["Job", job => jobName(job), "wide"], ["Progress", progressCell, "bar-cell"], ["Time left", leftCell],
		tenantColumn(), [".Actions", job => jobButton(job), "fit"]], list.rows, list.id)
		: empty("No job is running", "What you ask for shows up here.", {command: "penstock jobs"}))))

function summed({lanes, step_s: step, from}) {
	const add = name => (lanes[0]?.[name] ?? []).map((_, index) => {
		const values = lanes.map(lane => lane[name][index]).filter(known)
		return values.length ? values.reduce((sum, value) => sum + value) : null
	})
	return {waiting: add("waiting"), done: add("done"), failed: add("failed"), from: Date.parse(from), step}
}

const hourPane = (hour, asTable) => pane("Last hour", {sub: "tasks of all lanes: waiting above, settled per minute below",
	end: [["done", "failed"].map(name => h("span.key", h(`i.st-${name}`), name)), button(asTable ? "Show as chart" : "Show as table", "as-table", {kind: "small bare"})]},
h("div.pad", content(hour, value => {
	const data = summed(value)
	const total = name => count(data[name].reduce((sum, one) => sum + (one ?? 0), 0))
	if (!data.waiting.some(known)) return empty("No history yet", "The server keeps 24 h from its start.")
	data.label = `Last hour: ${count(data.waiting.findLast(known))} tasks wait now, ${total("done")} were done and ${total("failed")} failed.`
	return asTable ? hourTable(data) : lastHour(data)
})))

const hourTable = data => scroller("div.scroll", "Last hour as a table", table("plain", [
	["Minute", index => clock(new Date(data.from + index * data.step * 1000))], ...["waiting", "done", "failed"].map(name => [sentence(name), index => count(data[name][index]), "right"])],
[...data.waiting.keys()].filter(index => known(data.waiting[index])).reverse(), index => index))

const failuresPane = reasons => pane("Failures by reason", {sub: reasons.value && plural(reasons.value.total, "job"), end: h("a", {href: "#/failures", label: "Open failures"}, "Open")},
	content(reasons, ({total, groups}) => (total ? failureRows(groups.slice(0, 4), true) : nothingFailed())))

// Keys bound to tenants get no workers.
const workersPane = stats => stats.value?.workers !== null && pane("Workers", {end: h("a", {href: "#/workers", label: "Open workers"}, "Open")},
	content(stats, ({workers}) => (workers?.length ? workerTable(workers, true) : noWorker())))
