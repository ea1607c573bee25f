/* The search of this website runs in a Worker, and no browser starts one from file://. There it runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      const ask = inside.postMessage.bind(inside)
      const load = source => new Promise((done, failed) => {
        const script = inside.document.createElement("script")
        Object.assign(script, { src: source, onload: done, onerror: failed })
        inside.document.body.appendChild(script)
      })
      inside.postMessage = data => setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })))
      inside.importScripts = (...sources) => sources.reduce((before, one) => before.then(() => load(one)), Promise.resolve())
      const ready = load(address)
      this.postMessage = message => ready.then(() => ask(message, "*"))
      this.terminate = () => frame.remove()
    }
  }
}
