"""Peers as threads of this process: what `TorchLinks` does between processes, with queues."""

import queue
import threading


class Hung(Exception):
    """A peer that is told to die raises it; whoever waits for it then hears nothing."""


class Threads:
    """Edges between `size` peers. A peer that `leave`s is missing in what its neighbours hear from then on."""

    def __init__(self, size):
        self.pipes = {(i, j): queue.SimpleQueue() for i in range(size) for j in range(size)}
        self.size = size

    def exchange_of(self, peer):
        def exchange(messages):
            for other, message in messages.items():
                self.pipes[peer, other].put(message.copy())
            heard = {other: self.pipes[other, peer].get(timeout=60.0) for other in messages}
            return {other: message for other, message in heard.items() if message is not None}

        return exchange

    def leave(self, peer):
        for other in range(self.size):
            self.pipes[peer, other].put(None)

    def run(self, peer_program):
        """Run peer_program(peer, exchange) for every peer, each in a thread; what each returned, None for the dead."""
        results = [None] * self.size
        errors = []

        def body(peer):
            try:
                results[peer] = peer_program(peer, self.exchange_of(peer))
            except Hung:
                pass
            except BaseException as error:
                errors.append(error)
            finally:
                self.leave(peer)

        threads = [threading.Thread(target=body, args=(peer,)) for peer in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results
