import {bar, below, button, content, count, duration, get, h, jobPill, known, link, mayWrite, pager, perMinute, plural, sr, steady, table, tenantColumn, timeLeft} from "./ui.js"
import * as actions from "./actions.js"
import {List} from "./list.js"

export const nameOf = (job, folder) => job.folder_path ? below(job.folder_path, folder) : job.item_type === "content" ? "note" : job.item_type
const mayCancel = job => mayWrite() && ["pending", "running"].includes(job.status) && !job.cancel_requested
const mayRetry = job => mayWrite() && (["failed", "cancelled"].includes(job.status) || (job.status === "done" && job.children.failed > 0))

// The line below the name: the reason first, the code second, the remedy third.
function reasonOf(job) {
	const {status, error, progress} = job
	const file = status === "running" && progress.current_file !== job.folder_path && below(progress.current_file, job.folder_path)
	const parts = status === "failed" ? [error?.slice(0, 300), job.error_code, job.remedy] : [job.op === "delete" ? "removal" : job.item_type, file || (status === "cancelled" ? error : job.reason)]
	return parts.filter(Boolean).join(" · ")
}

export function partsOf({status, children, progress: {files_processed: processed, files_total: total}}) {
	if (status === "failed" && total <= 1) return [{failed: 1}, 1]
	if (status === "done" && !total) return [{done: 1}, 1]
	if (!total || status === "pending") return [{}, status === "pending" ? 1 : 0]
	const failed = Math.min(children.failed, total)
	const done = Math.max((processed ?? 0) - failed, 0)
	return [{done, failed, running: status === "running" ? Math.min(total - done - failed, total / 50) : 0}, total]
}

function progressWords({status, held, children, progress: {files_processed: processed, files_total: files, chunks_created: chunks}}) {
	if (status === "pending") return held ? "waits" : "not started"
	if (files > 1) return known(processed) ? `${count(processed)} of ${count(files)} files${children.failed ? `, ${count(children.failed)} failed` : ""}` : "files done: unknown"
	if (chunks || status === "done") return plural(chunks, "chunk")
	return status === "running" ? "no total given" : ""
}

export function progressCell(job) {
	const running = job.status === "running"
	const words = progressWords(job)
	return h("div.progress", bar(...partsOf(job), words || job.status, {active: running}),
		h("span", h("span", words), running && job.progress.files_total > 1 && h("span.num", `${Math.floor(job.progress.percent_complete)} %`)))
}

export const leftCell = job => [h("b", steady(`left-${job.job_id}`, timeLeft(job.time_left_s))),
	h("span.sub2", job.rate ? perMinute(job.rate, "files") : `runs ${duration(job.running_time_ms)}`)]

export function jobButton(job, words = "Cancel", kind = "small") {
	const [verb, shown] = mayCancel(job) ? ["cancel", words] : mayRetry(job) ? ["retry", "Retry"] : []
	return verb && button(shown, `${verb}-job`, {kind, image: verb === "retry" ? "retry" : "stop", "data-id": job.job_id, label: `${shown} ${nameOf(job)}`})
}

export const jobName = (job, folder) => [h("a.path", {href: link(["jobs", job.job_id])}, nameOf(job, folder)), h("span.sub2", reasonOf(job))]

export const jobActs = (find, done) => ({
	"cancel-job": async ({dataset}) => (await actions.cancelJob(find(dataset.id))) && done(),
	"retry-job": async ({dataset}) => (await actions.retryJob(dataset.id)) && done(),
})

// A list of jobs with a choice: on this page, or all that match, by the filter that made the list.
export function jobList(ctx, name, filter, {parts, folder, what, refresh, about}) {
	const {query} = ctx
	const id = job => job.job_id
	const list = new List(name, id, ctx.previous?.jobs.list)
	const page = ctx.read(name, async () => {
		const found = await get("/index/jobs/", {...filter, sort: query.sort, cursor: query.cursor, limit: 50})
		// Rows that stay although they left the answer show what became of them.
		for (const one of list.take(found.jobs, found).slice(0, 9)) list.merge(one, await get(`/index/jobs/${one}`))
		return found
	})
	const isChosen = job => list.selected.has(id(job))
	const act = (verb, may) => async () => {
		const done = list.all ? await actions.actOnMatching(verb, filter, about?.(), list.rows.length) : await actions.actOnSelected(verb, list.rows.filter(isChosen).filter(may))
		if (!done) return
		list.clear()
		refresh()
	}
	const bulk = () => {
		const rows = list.rows.filter(isChosen)
		const all = known(list.total) ? count(list.total) : "all"
		const verbs = [["Retry", mayRetry, "retry"], ["Cancel", mayCancel, "stop"]].map(([verb, may, image]) => [verb, rows.filter(may).length, image]).filter(([, number]) => number)
		return rows.length > 0 && h("div.bulk", {key: "bulk", role: "region", label: "Chosen jobs"},
			h("b", list.all ? `All ${all} matching chosen.` : `${count(rows.length)} chosen on this page.`),
			!list.all && rows.length === list.rows.length && list.next && button(`Select all ${all} matching`, "select-all", {kind: "small bare"}),
			h("span.end", verbs.map(([verb, number, image]) => button(`${verb} ${list.all ? all : count(number)}`, `${verb.toLowerCase()}-chosen`, {kind: "small", image})), button("Clear", "select-none", {kind: "small"})))
	}
	const tick = (words, checked, props) => h("label.hit", sr(words), h("input", {type: "checkbox", checked, ...props}))
	const columns = () => [
		mayWrite() && [[tick("Choose all on this page", list.rows.every(isChosen), {act: "select-page"})], job => tick(`Choose ${nameOf(job)}`, isChosen(job), {act: "select", "data-id": id(job)}), "tick"],
		[what, job => jobName(job, folder?.()), "wide"], ["State", jobPill, "state"], ["Progress", progressCell, "bar-cell"],
		!folder && tenantColumn(),
		["Took", job => duration(job.execution_time_ms ?? job.running_time_ms).replace("unknown", "–"), "right num muted took"],
		[".Actions", job => jobButton(job), "fit"],
	]
	return {
		list, page,
		acts: {
			...jobActs(wanted => list.rows.find(job => id(job) === wanted), refresh),
			select: ({dataset, checked}) => list.select([dataset.id], checked),
			"select-page": ({checked}) => list.select(list.rows.map(id), checked),
			"select-all": () => { list.all = true; },
			"select-none": () => list.clear(),
			"show-newer": () => list.showNewer(),
			"retry-chosen": act("retry", mayRetry),
			"cancel-chosen": act("cancel", mayCancel),
		},
		hear(job) {
			if (!list.merge(job.job_id, job) || filter.status || filter.held) page.refresh()
		},
		view: nothing => [list.newer(what.toLowerCase()), bulk(), content({...page, value: page.value ?? list.rows.length > 0}, () =>
			(list.rows.length ? table(name, columns(), list.rows, id, isChosen) : nothing())), pager(parts, query, list.next)],
	}
}
