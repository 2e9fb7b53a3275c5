import {address} from "./api.js"

export function here() {
	const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?")
	return {parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: Object.fromEntries(new URLSearchParams(query))}
}

export const link = (parts, query) => `#/${address(parts.map(encodeURIComponent).join("/"), query)}`

export const go = (parts, query) => {
	location.hash = link(parts, query)
}

export function filter(changes, quiet = false) {
	const {parts, query} = here()
	const target = link(parts, {...query, cursor: null, ...changes})
	if (!quiet) location.hash = target
	else if (target !== location.hash) {
		history.replaceState(null, "", target)
		window.dispatchEvent(new Event("hashchange"))
	}
}
