export class Problem extends Error {
	constructor(status, body) {
		super(body.detail || body.title || `The server answered ${status}`)
		this.status = status
		this.code = body.code ?? `HTTP ${status}`
		this.remedy = body.remedy ?? ""
		this.body = body
		this.passing = [0, 429, 503].includes(status)
	}
}

export function address(path, filters = {}) {
	const kept = Object.entries(filters).filter(([, value]) => ![null, undefined, ""].includes(value))
	return kept.length ? `${path}?${new URLSearchParams(kept)}` : path
}

async function request(method, path, body, parse = JSON.parse) {
	let response, text
	try {
		response = await fetch(path, {
			method,
			headers: body && {"Content-Type": "application/json"},
			body: body && JSON.stringify(body),
			signal: AbortSignal.timeout(30000),
			cache: "no-store",
		})
		text = await response.text()
	} catch {
		throw new Problem(0, {detail: "The server does not answer", code: "", remedy: "Check that `penstock serve` runs."})
	}
	if (response.status === 401 && path !== "/session") document.dispatchEvent(new Event("penstock:login"))
	if (response.ok) return text ? parse(text) : null
	let problem = {}
	try {
		problem = JSON.parse(text)
	} catch {
	}
	throw new Problem(response.status, problem)
}

// Numbers that JavaScript would round are kept as they were written, where the browser can.
const exactly = text => JSON.parse(text, (name, value, context) => (Number.isInteger(value) && !Number.isSafeInteger(value) && JSON.rawJSON?.(context.source)) || value)

export const get = (path, filters) => request("GET", address(path, filters))
export const getExact = path => request("GET", path, undefined, exactly)
export const post = (path, body = {}) => request("POST", path, body)
export const put = (path, body) => request("PUT", path, body)
export const remove = path => request("DELETE", path)

// One thing read from the server again and again, at most once in `gap` milliseconds.
export class Resource {
	value = null
	error = null
	#running = false
	#again = false
	#timer = null
	#last = -Infinity
	#closed = false

	constructor(read, changed, gap = 1000) {
		Object.assign(this, {read, changed, gap})
	}

	refresh() {
		if (this.#closed || this.#timer !== null) return
		if (this.#running) this.#again = true
		else this.#timer = setTimeout(() => this.#now(), Math.max(this.#last + this.gap - performance.now(), 0))
	}

	hurry() {
		this.#last = -Infinity
		clearTimeout(this.#timer)
		this.#timer = null
		this.refresh()
	}

	async #now() {
		this.#timer = null
		this.#running = true
		try {
			this.value = await this.read()
			this.error = null
		} catch (error) {
			if (!(error instanceof Problem)) throw error
			this.error = error
		} finally {
			this.#running = false
			this.#last = performance.now()
		}
		if (this.#closed) return
		this.changed()
		if (this.error?.passing) setTimeout(() => this.refresh(), 5000)
		if (this.#again) this.refresh()
		this.#again = false
	}

	close() {
		this.#closed = true
		clearTimeout(this.#timer)
	}
}
