"""What links between processes cost: mutual TLS against plaintext, in one run, as ratios; and the
time of a word.

    python benchmarks/links.py [--agents 8] [--sizes 1,500,16384] [--asyncio]

Every process holds two sets of links, one with TLS and one without, and the same words are said
over both in turns, so that a busy machine disturbs both alike. `Sum` is an all-reduce over a server
star, `Exchange` a neighbour exchange on an expander; the median of all rounds counts, in
microseconds of the clock and, for the ratio, also in processor time of all processes together. With
`--asyncio` the comparison is not with TLS, but with the least that gRPC's other interface could
cost: one event loop in a thread, no numbering, no heartbeat, no replay.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import multiprocessing as mp
import tempfile
import threading
import time
from queue import SimpleQueue

import grpc.aio
import numpy as np

from coterie.networks import Network, complete, expander, star
from coterie.run.bill import Bill
from coterie.run.collectives import Exchange, Sum
from coterie.transport.driver import Driver
from coterie.transport.frames import Header, Kind, decode, encode
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.keys import load_keys, provide_all
from coterie.transport.layout import Layout
from coterie.transport.point_to_point import PointToPoint
from coterie.transport.security import TrustedCluster


def say(word):
    """A round of one word."""
    reply = yield word
    return reply


class Bare:
    """Links on gRPC's asyncio interface without anything that makes them safe: a yardstick."""

    def __init__(self, me: int, neighbours: list[int]):
        self.me, self.neighbours = me, neighbours
        self.inboxes = {peer: SimpleQueue() for peer in neighbours}
        self.outboxes = {}
        self.ready = threading.Semaphore(0)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.address = self._soon(self._listen()).result()

    def _soon(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def _listen(self) -> str:
        handler = grpc.stream_stream_rpc_method_handler(self._accept)
        self.server = grpc.aio.server()
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("Bare", {"Talk": handler}),)
        )
        port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()
        return f"127.0.0.1:{port}"

    async def _accept(self, requests, context) -> None:
        peer = int(await context.read())
        await self._talk(peer, context.read, context.write)

    async def _dial(self, peer: int, address: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            call = channel.stream_stream("/Bare/Talk")()
            await call.write(str(self.me).encode())
            await self._talk(peer, call.read, call.write)

    async def _talk(self, peer: int, read, write) -> None:
        outbox = self.outboxes[peer] = asyncio.Queue()

        async def sending() -> None:
            while True:
                await write(await outbox.get())

        sender = asyncio.create_task(sending())
        self.ready.release()
        while isinstance(frame := await read(), bytes):
            self.inboxes[peer].put(decode(frame)[1])
        sender.cancel()

    def connect(self, addresses: list[str]) -> None:
        for peer in self.neighbours:
            if peer < self.me:
                self._soon(self._dial(peer, addresses[peer]))

    def wait(self) -> None:
        for _ in self.neighbours:
            self.ready.acquire()

    def send(self, to: int, message, tag) -> None:
        frame = encode(
            Header(Kind.MESSAGE, "run", 0, self.me, 1, 0, tag.purpose, tag.step, tag.word), message
        )
        self.loop.call_soon_threadsafe(self.outboxes[to].put_nowait, frame)

    def receive(self, source: int, tag):
        return self.inboxes[source].get()

    def close(self) -> None:
        time.sleep(0.5)


def network_of(word: str, agents: int) -> Network:
    if word == "Sum":
        return star(agents, server=True)
    return expander(agents, degree=3, seed=0) if agents > 4 else complete(agents)


def place(
    pipe, me: int, names: list[str], keys, word: str, sizes: list[int], blocks: int, rounds: int
) -> None:
    """One process: open both sets of links, then measure."""
    network = network_of(word, len(names))
    process_of = range(len(names))
    neighbours = Layout(network, process_of, me).partners
    transports = []
    for security in (TrustedCluster(), keys):
        if security is None:
            links = Bare(me, neighbours)
        else:
            links = GrpcMesh(me, neighbours, "benchmark", security, 60.0, names=names)
        pipe.send(links.address)
        links.connect(pipe.recv())
        links.wait()
        transports.append(
            Driver(Bill(network), PointToPoint(network, links, process_of, me, names))
        )
    if keys is not None:
        transports[1].collectives.transcript = hashlib.sha256()  # as between organisations
    kind = Sum if word == "Sum" else Exchange
    for size in sizes:
        x = np.random.default_rng(me).standard_normal(size)
        clock: list[list[float]] = [[], []]
        cpu = [0.0, 0.0]
        for _ in range(blocks):
            for which, transport in enumerate(transports):
                transport.converse([say(kind(x))], "rounds")
                began_cpu = time.process_time()
                for _ in range(rounds):
                    began = time.perf_counter()
                    transport.converse([say(kind(x))], "rounds")
                    clock[which].append(time.perf_counter() - began)
                cpu[which] += time.process_time() - began_cpu
        pipe.send((clock, cpu))
    for transport in transports:
        transport.links.close()


def measure(
    word: str, agents: int, sizes: list[int], blocks: int = 6, rounds: int = 25, bare: bool = False
) -> dict[int, tuple[float, float, float]]:
    """By size: microseconds of a round in plaintext and with TLS, and the ratio of processor
    times.
    """
    names = [f"agent-{j}" for j in range(agents)]
    with tempfile.TemporaryDirectory() as folder:
        keys = [
            load_keys(path, name) for name, path in provide_all(folder, "benchmark", names).items()
        ]
    context = mp.get_context("spawn")
    pipes, processes = [], []
    for me in range(agents):
        local, there = context.Pipe()
        arguments = (there, me, names, None if bare else keys[me], word, sizes, blocks, rounds)
        processes.append(context.Process(target=place, args=arguments, daemon=True))
        processes[-1].start()
        pipes.append(local)
    for _ in range(2):
        addresses = [pipe.recv() for pipe in pipes]
        for pipe in pipes:
            pipe.send(addresses)
    found = {}
    for size in sizes:
        received = [pipe.recv() for pipe in pipes]
        plain, other = (
            1e6 * float(np.median([clock[which] for clock, _ in received])) for which in range(2)
        )
        cpu = [sum(used[which] for _, used in received) for which in range(2)]
        found[size] = plain, other, cpu[1] / cpu[0]
    for process in processes:
        process.join()
    for pipe in pipes:
        pipe.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--sizes", default="1,500,16384")
    parser.add_argument("--asyncio", action="store_true")
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    title = "asyncio" if given.asyncio else "TLS"
    print(f"{given.agents} processes, median µs of a round")
    print(f"{'collective':<11}{'numbers':>9}{'plain':>10}{title:>10}{'ratio':>8}{'cpu ratio':>11}")
    for word in ("Sum", "Exchange"):
        for size, (plain, other, cpu) in measure(
            word, given.agents, sizes, bare=given.asyncio
        ).items():
            print(
                f"{word:<11}{size:>9}{plain:>10.0f}{other:>10.0f}{other / plain:>8.2f}{cpu:>11.2f}"
            )


if __name__ == "__main__":
    main()
