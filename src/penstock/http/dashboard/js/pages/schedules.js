import {a, address, ask, button, content, count, empty, get, h, head, link, mayWrite, pane, pill, plural, post, remove, sentence, table, tenantColumn, time, toast} from "../ui.js"

export function open({read}) {
	const page = read("page", () => get("/schedules", {limit: 1000}), 2000)
	const path = ({name, tenant}, verb = "") => address(`/schedules/${encodeURIComponent(name)}${verb}`, {tenant_id: tenant})
	const act = (verb, words) => async ({dataset}) => {
		const {job_id: id} = await post(path(dataset, `/${verb}`))
		toast(words, dataset.name, id && link(["jobs", id]))
		page.hurry()
	}
	return {
		hear: kind => kind === "job" && page.refresh(),
		acts: {
			run: act("run", "Queued."), pause: act("pause", "Paused."), resume: act("resume", "Resumed."),
			remove: async ({dataset}) => await ask({title: `Remove the schedule ${dataset.name}?`, words: "It does not run again. Jobs that it added stay.",
				yes: "Remove schedule", no: "Keep it", danger: true, submit: () => remove(path(dataset))}) && page.hurry(),
		},
		view: () => h("div.wrap", head("Schedules"), pane("By the clock", {sub: page.value?.next && "the first 1,000"},
			content(page, ({schedules}) => schedules.length ? table("schedules", columns(), schedules, one => `${one.tenant_id}/${one.name}`)
				: empty("Nothing runs by itself", "A schedule indexes a path or calls a function by the clock.", {command: "penstock schedule add \"0 3 * * *\" index ~/notes"})))),
	}
}

const columns = () => [
	["Schedule", one => [h("b.path", one.name), h("span.sub2", one.does)], "wide"], ["Timing", one => [h("code", one.timing), h("span.sub2", one.zone)]],
	["Next run", one => one.paused ? pill("held", "paused") : [one.next_in_zone[0]?.slice(0, 16).replace("T", " ") ?? "no next run", h("span.sub2", "here ", time(one.next_at))], "num"],
	["Last run", one => one.last_job_id ? [a(link(["jobs", one.last_job_id]), pill(one.last_status ?? "skipped", one.last_status ?? "not kept")), h("span.sub2", time(one.last_at), `, ${plural(one.runs, "run")}`, one.skipped > 0 && `, ${count(one.skipped)} missed`, one.last_error && `. ${sentence(one.last_error)}`)] : "no run yet"],
	tenantColumn(),
	mayWrite() && [".Actions", one => h("div.acts", [["Run now", "run", "play"], one.paused ? ["Resume", "resume"] : ["Pause", "pause"], ["Remove", "remove"]].map(([words, verb, image]) =>
		button(words, verb, {kind: "small", image, "data-name": one.name, "data-tenant": one.tenant_id, label: `${words} ${one.name}`}))), "fit"],
]
