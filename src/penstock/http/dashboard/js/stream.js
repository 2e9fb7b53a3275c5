// The one stream of live events. Read with fetch, not EventSource: a reconnect can send Last-Event-ID after a pause
// that we choose, and a 401 is told apart from a server that is away.
const PAUSES_S = [1, 2, 5, 10]
const SILENCE_MS = 40000; // the server sends a comment each 15 s
const HIDDEN_MS = 30000

export class Stream {
	state = "connecting"; // connecting, live, lost, or paused while the tab is hidden
	lastAt = null
	nextTryAt = null
	#tries = 0
	#lastId = null
	#abort = null
	#timer = null
	#silence = null

	// `hear(kind, data)` gets each event, `changed()` each change of the state; `opened()` means: read again.
	constructor({hear, changed, opened}) {
		Object.assign(this, {hear, changed, opened})
		let hidden = null
		document.addEventListener("visibilitychange", () => {
			clearTimeout(hidden)
			// A hidden page gives back its connection: browsers allow six for a host.
			if (document.hidden) hidden = setTimeout(() => this.#end("paused"), HIDDEN_MS)
			else if (this.state === "paused") this.connect()
		})
		// So does a page that the browser keeps for its back button.
		window.addEventListener("pagehide", () => this.#end("paused"))
		window.addEventListener("pageshow", event => event.persisted && this.connect())
	}

	async connect() {
		this.#end(this.state)
		const abort = (this.#abort = new AbortController())
		try {
			const headers = this.#lastId === null ? {} : {"Last-Event-ID": this.#lastId}
			const response = await fetch("/events", {headers, signal: abort.signal, cache: "no-store"})
			if (response.status === 401) document.dispatchEvent(new Event("penstock:login"))
			if (response.ok) {
				this.#tries = 0
				this.#set("live")
				this.opened()
				await this.#read(response.body.getReader(), abort)
			}
		} catch {
		}
		if (this.#abort !== abort) return
		const pause = PAUSES_S[Math.min(this.#tries, PAUSES_S.length - 1)] * 1000 * (0.7 + 0.3 * Math.random())
		this.#tries += 1
		this.nextTryAt = Date.now() + pause
		this.#timer = setTimeout(() => this.connect(), pause)
		this.#set("lost")
	}

	async #read(reader, abort) {
		const decoder = new TextDecoder()
		let text = ""
		for (;;) {
			clearTimeout(this.#silence)
			this.#silence = setTimeout(() => abort.abort(), SILENCE_MS)
			const {done, value} = await reader.read()
			if (done) return
			this.lastAt = new Date()
			text += decoder.decode(value, {stream: true})
			const parts = text.split(/\r?\n\r?\n/)
			text = parts.pop()
			parts.forEach(part => this.#dispatch(part))
		}
	}

	#dispatch(part) {
		let kind = "message"
		let data = ""
		for (const line of part.split(/\r?\n/)) {
			const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? []
			if (name === "event") kind = value
			else if (name === "data") data += value
			else if (name === "id") this.#lastId = value
		}
		if (kind === "reset") this.opened()
		else if (data) this.hear(kind, JSON.parse(data))
	}

	#end(state) {
		clearTimeout(this.#timer)
		clearTimeout(this.#silence)
		const abort = this.#abort
		this.#abort = null
		abort?.abort()
		this.#set(state)
	}

	#set(state) {
		this.state = state
		this.changed()
	}
}
