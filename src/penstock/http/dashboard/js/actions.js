import {ask, count, field, filled, glyph, go, h, known, link, ownFields, plural, post, Problem, remove, sentence, toast} from "./ui.js"
import {nameOf} from "./job_parts.js"

const jobPath = id => `/index/jobs/${encodeURIComponent(id)}`

export const refused = error => ask({title: "That was not done", words: error.message, list: error.remedy ? [error.remedy] : [], no: "Close"})

// One retry needs no question.
export async function retryJob(id) {
	toast("Put back.", nameOf(await post(`${jobPath(id)}/retry`)))
	return true
}

export function cancelJob(job) {
	const running = job.status === "running"
	const {files_total: total, files_processed: done} = job.progress
	return ask({
		title: `Cancel ${nameOf(job)}?`,
		words: running ? "It stops at the next checkpoint, within seconds." : "It waits, and will not be started.",
		list: running && total > 1 && known(done) ? [[glyph("cancelled"), `${plural(total - done, "open file")} will not be indexed`], [glyph("done"), `${plural(done, "finished file")} stay in the index`]] : [],
		yes: "Cancel job", no: running ? "Keep running" : "Keep it", danger: true,
		submit: async () => toast((await remove(jobPath(job.job_id))).status === "cancelled" ? "Cancelled." : "Stopping.", nameOf(job)),
	})
}

// Ask about many jobs. `send` answers with the number that was changed, or with `{moved}` if the count was another.
async function askMany(act, number, title, words, send) {
	const retry = act === "retry"
	const verb = retry ? "Retry" : "Cancel"
	const answer = await ask({
		title: `${verb} ${title}?`, words: `${words} ${retry ? "The work is put back at its old priority." : "Running ones stop at the next checkpoint; finished files stay."}`,
		yes: `${verb} ${count(number)}`, no: retry ? "Not now" : "Keep them", danger: !retry, submit: send,
	})
	if (typeof answer === "number") toast(`${count(answer)} of ${count(number)} ${retry ? "put back" : "cancelled or stopping"}.`, answer < number ? `${count(number - answer)} had changed in the meantime.` : "")
	return answer
}

// Retry or cancel all jobs that match a filter: exactly as many as the person was asked about, or none.
export async function actOnMatching(act, filter, about, onPage = Infinity) {
	const send = (expect, dry_run = false) => post(`/index/jobs/${act}`, {filter, expect, dry_run})
	let {matched} = await send(0, true)
	let words = `${about ?? `Filter: ${Object.values(filter).join(", ")}.`}${matched > onPage ? ` ${count(onPage)} are on this page, ${count(matched - onPage)} are not.` : ""}`
	for (;;) {
		if (!matched) return ask({title: "No job matches any more", words: "They changed in the meantime.", no: "Close"})
		const answer = await askMany(act, matched, matched === 1 ? "the one matching job" : `all ${count(matched)} matching jobs`, words, async () => {
			let changed = 0
			try {
				for (let part = {more: true, changed: 1}; part.more && part.changed; changed += part.changed) part = await send(matched - changed)
				return changed
			} catch (error) {
				if (error.code !== "ERR_COUNT_CHANGED" || changed) throw error
				return {moved: error.body.matched}
			}
		})
		if (answer?.moved === undefined) return answer
		words = `The number changed from ${count(matched)} to ${count(answer.moved)}.`
		matched = answer.moved
	}
}

export async function retryGroup(reason, reasons) {
	const group = reasons.value.groups.find(one => one.reason === reason)
	if (group && (await actOnMatching("retry", group.filter, `${sentence(group.message)} (${group.error_code}).`))) reasons.hurry()
}

export async function actOnSelected(act, jobs) {
	if (jobs.length === 1) return act === "retry" ? retryJob(jobs[0].job_id) : cancelJob(jobs[0])
	return askMany(act, jobs.length, `${count(jobs.length)} chosen jobs`, "", async () => {
		let changed = 0
		for (const {job_id: id} of jobs) {
			try {
				await (act === "retry" ? post(`${jobPath(id)}/retry`) : remove(jobPath(id)))
				changed += 1
			} catch (error) {
				if (!(error instanceof Problem) || error.passing) throw error
			}
		}
		return changed
	})
}

const placeFields = () => ownFields({tenant_id: "Tenant, if not the default", collection: "Collection, if not the default"}, {})

export async function indexFolder() {
	const receipt = await ask({
		title: "Index a folder or file",
		words: "It becomes searchable file by file while you watch. Unchanged files are not read again.",
		body: h("div.fields", field("folder_path", "Path on the server, below one of its roots", "", {required: true, autofocus: true, placeholder: "/srv/library"}), placeFields(), h("label.check", h("input", {type: "checkbox", name: "include_code"}), "Include source code")),
		yes: "Index it",
		submit: form => {
			const {include_code: code, ...body} = filled(form)
			return post("/index/", code ? {...body, include_code: true} : body)
		},
	})
	if (!receipt) return
	toast(receipt.dedupe_hit ? "Already asked." : "Queued.", receipt.message)
	go(["jobs", receipt.job_id])
}

export async function addNote() {
	const receipt = await ask({
		title: "Add a note",
		words: "The text becomes a document of its own. Equal texts are one note.",
		body: h("div.fields", h("label.field", "Text", h("textarea", {name: "content", rows: 6, required: true, autofocus: true})), field("tag", "Tag"), placeFields()),
		yes: "Add note",
		submit: form => post("/content", filled(form)),
	})
	if (receipt) toast("Queued.", "The note is searchable in a moment.", link(["jobs", receipt.job_id]))
}

export const pauseQueue = () => ask({
	title: "Pause the queue?",
	words: "No job of any tenant is started until you resume. Running jobs go on, and new requests are accepted.",
	yes: "Pause queue", no: "Keep flowing",
	submit: () => post("/queue/pause", {tenant_id: "*"}),
})

export async function resumeScope(tenant_id, collection) {
	const {released} = await post("/queue/resume", collection === "*" ? {tenant_id} : {tenant_id, collection})
	toast("Resumed.", released ? `${plural(released, "job")} released.` : "")
}

export async function removeDocument(source) {
	const receipt = await ask({
		title: `Remove ${source.path} from the index?`,
		words: "Search stops finding it within seconds. The file itself stays where it is.",
		list: [[glyph("cancelled"), `${plural(source.pages, "page")} and ${plural(source.chunks, "chunk")} leave the index`]],
		yes: "Remove", no: "Keep it", danger: true,
		submit: () => remove(`/documents/${encodeURIComponent(source.source_id)}`),
	})
	if (!receipt) return
	toast("Queued.", "The document is being removed.", link(["jobs", receipt.job_id]))
	go(["documents"])
}

export async function copyText(text) {
	await navigator.clipboard.writeText(text)
	toast("Copied.")
}
