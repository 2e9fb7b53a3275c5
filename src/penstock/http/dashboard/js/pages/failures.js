import {button, content, count, empty, h, head, link, mayWrite, pane, pill, plural, sentence, time, withCode} from "../ui.js"
import {retryGroup} from "../actions.js"
import {spark} from "../charts.js"

const HOUR_MS = 3600000

export const nothingFailed = () => empty("Nothing failed", "A failure shows up here with its remedy.", {command: "penstock why PATH"})

export const open = ({reasons}) => ({
	acts: {"retry-group": ({dataset}) => retryGroup(dataset.reason, reasons)},
	view() {
		const {total, groups, truncated} = reasons.value ?? {}
		return h("div.wrap", head("Failures", total > 0 && `${plural(total, "failed job")} for ${plural(groups.length, "reason")}${truncated ? ", the most frequent shown" : ""}`,
			total > 0 && h("a.btn", {href: link(["jobs"], {status: "failed", children: true})}, "All failed jobs")),
		pane("Reasons", {sub: "most frequent first; bars: when, newest right"}, content(reasons, () => (total ? failureRows(groups) : nothingFailed()))))
	},
})

export function failureRows(groups, small = false) {
	const age = iso => Date.now() - Date.parse(iso)
	return h("ul.reasons", groups.map(({reason, error_code: code, message, remedy, count: number, first_at: first, last_at: last, buckets, filter}) =>
		h("li", {key: reason},
			h("a.number.num", {href: link(["jobs"], {...filter, children: true}), label: `Show ${plural(number, "failed job")}`}, count(number)),
			h("div", h("h3", sentence(message || code), !small && [age(first) < HOUR_MS && pill("held", "new"), age(last) > HOUR_MS / 2 && pill("skipped", "over")]),
				h("p", h("code", code), " · ", !small && ["first ", time(first), ", "], "last ", time(last)), h("p", withCode(remedy))),
			spark(buckets),
			mayWrite() && button(`Retry ${count(number)}`, "retry-group", {kind: "small", image: "retry", "data-reason": reason}))))
}
