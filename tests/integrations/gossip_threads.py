"""Peers as threads of this process: the edges of `TorchLinks`, with queues in place of gloo."""

import queue
import threading

from fedgauss.integrations.gossip.edges import Edges
from fedgauss.integrations.gossip.seals import Seals


class Hung(Exception):
    """A peer that is told to die raises it; its connections then close."""


class Threads:
    """Connections between `size` peers. Who is in `frozen` neither sends nor receives while its event is not set.

    `secrets` has the secret of each peer, and `on_way(sender, receiver, tag, array)` may change what is sent.
    """

    def __init__(self, size, patience=60.0, secrets=None, on_way=lambda sender, receiver, tag, array: array):
        self.size, self.patience, self.frozen, self.secrets, self.on_way = size, patience, {}, secrets, on_way
        self.pipes, self.lock = {}, threading.Lock()
        self.closed = set()

    def pipe(self, *ends_and_tag):
        with self.lock:
            pipe = self.pipes.setdefault(ends_and_tag, queue.SimpleQueue())
            if not self.closed.isdisjoint(ends_and_tag[:2]):
                pipe.put(None)
            return pipe

    def edges_of(self, peer):
        def swap(other, message, tag):
            if peer in self.frozen:
                self.frozen[peer].wait(60.0)
            self.pipe(peer, other, tag).put(self.on_way(peer, other, tag, message.copy()))
            received = self.pipe(other, peer, tag).get(timeout=60.0)
            if received is None:
                raise RuntimeError("the connection is closed")
            return received

        return Edges(swap if self.secrets is None else Seals(swap, peer, self.secrets[peer]), self.patience)

    def close(self, peer):
        with self.lock:
            self.closed.add(peer)
            for ends_and_tag, pipe in self.pipes.items():
                if peer in ends_and_tag[:2]:
                    pipe.put(None)

    def run(self, peer_program):
        """Run peer_program(peer, exchange) for every peer, each in a thread; what each returned, None for the dead."""
        results = [None] * self.size
        errors = []

        def body(peer):
            edges = self.edges_of(peer)
            try:
                results[peer] = peer_program(peer, edges.exchange)
                edges.part()
            except Hung:
                pass
            except BaseException as error:
                errors.append(error)
            finally:
                edges.release()
                self.close(peer)
                edges.join()

        threads = [threading.Thread(target=body, args=(peer,)) for peer in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results
