import {a, bar, button, content, copyButton, count, crumbs, duration, empty, facts, get, getExact, glyph, h, head, icon, jobPill, link, manyTenants, mark, mayWrite, note, pane, perMinute, plural, scroller, sentence, steady, tabs, tenantName, time, timeLeft, withCode} from "../ui.js"
import * as actions from "../actions.js"
import {timeline} from "../charts.js"
import {jobButton, jobList, nameOf, partsOf} from "../job_parts.js"

const STATUSES = ["failed", "running", "pending", "done", "cancelled"]

export function open(ctx) {
	const {id, query, read, previous} = ctx
	const job = read("job", () => getExact(`/index/jobs/${encodeURIComponent(id)}`), 700)
	const counts = read("counts", async () => Object.fromEntries(await Promise.all(STATUSES.map(async status =>
		[status, (await get("/index/jobs/", {parent_id: id, status, limit: 1})).total]))), 2000)
	job.value = previous?.job.value ?? null
	counts.value = previous?.counts.value ?? null
	const refresh = () => [job, counts, jobs.page].forEach(one => one.hurry())
	const about = () => `Files of ${nameOf(job.value)}.`
	const jobs = jobList(ctx, "files", {parent_id: id, ...(query.status && {status: query.status})}, {parts: ["jobs", id], what: "File", folder: () => job.value?.folder_path, refresh, about})
	return {
		job, counts, jobs,
		hear(kind, data) {
			if (kind !== "job") return
			const own = data.job_id === id
			if (own && job.value) Object.assign(job.value, data)
			if (own) job.refresh()
			if (data.parent_id === id) jobs.hear(data)
			if (own || data.parent_id === id) counts.refresh()
		},
		acts: {
			...jobs.acts,
			"cancel-job": async element => element.dataset.id === id ? (await actions.cancelJob(job.value)) && refresh() : jobs.acts["cancel-job"](element),
			"retry-failed": async () => (await actions.actOnMatching("retry", {parent_id: id, status: "failed"}, about())) && refresh(),
		},
		view: () => h("div.wrap", !job.value && h("h1.sr", "Job"), content(job, value => [
			crumbs(a("#/jobs", "Jobs"), manyTenants() && a(link(["jobs"], {tenant_id: value.tenant_id}), tenantName(value.tenant_id)), value.parent_id && a(link(["jobs", value.parent_id]), "parent job"), h("span", value.item_type)),
			head(nameOf(value), [jobPill(value), h("span.id", id, copyButton(id, "the job's id")), h("span", "collection ", h("b", value.collection)), h("span", "asked ", time(value.enqueued_at), ` by ${value.submitted_by}`)],
				jobButton(value, "Cancel job", "warn")),
			h("div.columns",
				h("div.stack", progressPane(value, counts.value), failureNote(value, counts.value?.failed ?? value.children.failed), timelinePane(value),
					(jobs.list.total > 0 || query.status) && filesPane(value, jobs, counts.value, query)),
				h("div.stack", historyPane(value), factsPane(value), payloadPane(value))),
		])),
	}
}

function progressPane(job, counts) {
	const {files_processed: done, files_total: files, chunks_created: chunks} = job.progress
	const running = job.status === "running"
	const title = files > 1 ? `${count(done)} of ${count(files)} files` : `${sentence(job.status)}${chunks ? `, ${plural(chunks, "chunk")}` : ""}`
	const left = running ? `${steady(`left-${job.job_id}`, timeLeft(job.time_left_s))} left`.replace("unknown left", "time left unknown") : job.finished_at && ["ended ", time(job.finished_at)]
	// Files without need of a job are in the count of files, but no child.
	const unchanged = counts && !running && files > 1 ? files - STATUSES.reduce((sum, status) => sum + counts[status], 0) : 0
	return h("section.pane.pad-all", {key: "progress", label: "Progress"}, h("div.between", h("h2", title), h("b", left)),
		bar(...partsOf(job), title, {large: true, active: running}),
		h("div.legend", STATUSES.filter(status => counts?.[status] > 0).map(status => mark(status, `${count(counts[status])} ${status}`)), unchanged > 0 && mark("skipped", `${count(unchanged)} unchanged`),
			job.reason && h("span", sentence(job.reason)), job.rate > 0 && h("span.end", `at ${perMinute(job.rate, "files")}${job.rate_window_s ? `, the last ${duration(job.rate_window_s * 1000)}` : ""}`)))
}

function failureNote(job, failed) {
	if (failed > 0) {
		return note(`${plural(failed, "file")} failed.`, "The reasons stand beside each file. A retry reads only what failed.",
			h("a.btn.small", {href: link(["jobs", job.job_id], {status: "failed"})}, "See them"), mayWrite() && button(`Retry ${count(failed)}`, "retry-failed", {kind: "primary small", image: "retry"}))
	}
	return job.status === "failed" && note(sentence(job.error ?? "it failed"), [h("code", job.error_code), " · ", withCode(job.remedy)])
}

function runsOf(job, now = Date.now()) {
	const rows = []
	let spans = []
	let kind = "pending"
	let at = Date.parse(job.enqueued_at)
	const end = (moment, next) => {
		if (moment > at) spans.push({kind, from: at, to: moment})
		at = Math.max(moment, at)
		kind = next
	}
	const flush = (words, bad = false) => {
		if (spans.length) rows.push({name: `Run ${rows.length + 1}`, spans, words: words.slice(0, 70), bad})
		spans = []
	}
	for (const {at: when, what, note: words, worker_id: worker} of job.history) {
		if (what === "started") end(Date.parse(when), "running")
		else if (["lost", "retry", "retried", "released", "failed"].includes(what)) {
			// The start of an earlier run is not kept: what is known is when it ended.
			if (kind === "pending") kind = "running"
			end(Date.parse(when), what === "failed" ? "pending" : "held")
			flush(what === "lost" ? `worker ${worker ?? ""} lost` : (words ?? what), what !== "released")
		}
	}
	const finished = job.finished_at && Date.parse(job.finished_at)
	if (!finished || finished > at || !rows.length) {
		end(finished || now, "pending")
		flush(job.status === "running" ? `running, ${duration(job.running_time_ms)}` : job.status)
	}
	return rows
}

const timelinePane = job => pane("Timeline", {sub: "asked, claimed, run, settled", end: [["pending", "waits"], ["running", "runs"], ["held", "back-off"]].map(([status, words]) => h("span.key", h(`i.st-${status}`), words))},
	h("div.pad", timeline(runsOf(job).slice(-6), Date.parse(job.enqueued_at), Date.parse(job.finished_at) || Date.now(), job.finished_at)))

function filesPane(job, jobs, counts, query) {
	const to = status => link(["jobs", job.job_id], {status})
	const items = STATUSES.filter(status => counts?.[status] > 0 || status === query.status).map(status => [status, sentence(status), to(status), count(counts?.[status])])
	return h("section.pane", {key: "files", label: "Files"}, h("header", h("h2", "Files"), tabs("Files by status", [["", "All", to("")], ...items], query.status ?? "")),
		jobs.view(() => empty("No file is in this state", "Look at all files of this job.", {act: h("a.btn", {href: to("")}, "All files")})))
}

const EVENTS = {submitted: "pending", done: "done", failed: "failed", cancelled: "cancelled", lost: "failed", retry: "held", retried: "held", released: "held"}

const historyPane = job => pane("History", {sub: "newest last"}, h("ol.history.pad", job.history.map(({at, what, note: words, worker_id: worker}) =>
	h("li", time(at, true), glyph(EVENTS[what] ?? "running"), h("span", h("b", sentence(what)), words && ` ${words}`, what === "lost" && ` ${worker ?? ""}`)))))

const factsPane = job => pane("Facts", {}, facts([
	["Worker", job.worker_id ? [job.worker_id, job.lease_until && [", lease until ", time(job.lease_until, true)]] : "none"],
	["Claims", `${count(job.claim_number)}${job.lost_count ? ` (${plural(job.lost_count, "worker")} lost)` : ""}`],
	["Retries", `${count(job.retry_count)} of ${count(job.max_retries)} used`],
	["Priority", count(job.priority)],
	["Time limit", duration(job.timeout_s * 1000)],
	!job.finished_at && job.waiting_for && ["Waiting for", job.waiting_for === "children" ? plural(job.children.open, "file") : job.waiting_for],
	job.run_at && ["Not before", time(job.run_at)],
	job.after?.length && ["After", job.after.map(one => [a(link(["jobs", one]), one), " "])],
	job.limit_key && ["Limit", a(link(["workers"]), job.limit_key)],
	job.result_until && ["Result until", time(job.result_until)],
	["Run", `${count(job.run)}${job.follow_up ? ", one more was asked for" : ""}`],
	["Key", h("code", job.dedupe_key)],
]))

function payloadPane(job) {
	const text = JSON.stringify(job.payload, null, 2)
	return pane("Payload", {sub: "secrets are masked", end: h("button.btn.small", {act: "copy", "data-text": text}, icon("copy", 14), "Copy")},
		h("details.pad", {open: text.length < 1500}, h("summary", plural(text.length, "character")), scroller("pre.json", "Payload as JSON", text)))
}
