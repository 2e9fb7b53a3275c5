import {h} from "./dom.js"
import {count} from "./format.js"
import {icon} from "./parts.js"

export const glyph = status => icon(`st-${status}`, 12, `glyph.st-${status}`)

export const pill = (status, words = status) => h(`span.pill.st-${status}`, glyph(status), words)

export const mark = (status, words) => h("span.mark-row", glyph(status), h("span", words))

const HELD = {time: "until its time", lock: "another job writes here", pause: "paused", after: "other jobs come first"}

export function jobPill(job) {
	if (job.held) return pill("held", `held: ${HELD[job.held] ?? job.held}`)
	return pill(job.status, job.cancel_requested && job.status === "running" ? "stopping" : job.status)
}

const DOCUMENTS = {indexed: ["done", "searchable"], partial: ["held", "partly searchable"], failed: ["failed"], indexing: ["running", "indexing"]}
export const documentPill = status => pill(...(DOCUMENTS[status] ?? ["pending", status]))

const ORDER = ["done", "failed", "skipped", "cancelled", "running", "held"]

// A bar of segments; `parts` has counts by status. Without a total it is striped, and empty unless `active`.
export function bar(parts, total, label, {large = false, active = false} = {}) {
	const segments = total
		? ORDER.filter(status => parts[status] > 0).map(status =>
			h(`i.seg.st-${status}`, {key: status, style: {width: `${(100 * parts[status]) / total}%`}}))
		: active && h("i.seg.st-running.all")
	return h("span.bar", {class: large ? "large" : "", role: "img", label}, segments)
}

export const statusWords = (counts, noun = "") => ORDER.concat("pending").filter(status => counts[status] > 0)
	.map(status => `${count(counts[status])}${noun} ${status}`).join(", ")
