"""Server-less local SGD: each peer is a process that talks to its neighbours only.

    with TorchLinks(rank, size, "file:///tmp/ring") as links:
        run = run_peer(rank, problem, network, steps, n_steps=2000, exchange=links.exchange, lin=lin)

`pip install 'fedgauss[gossip]'` for torch.distributed (gloo). A killed peer is noticed by its neighbours, who go on
with Metropolis weights on the survivors. Every peer watches its own neighbourhood: see `neighbourhood`; with
`on_alarm="exclude"` it goes on without a neighbour that it named.
"""

from fedgauss.integrations.gossip.peer import PeerRound, PeerRun, run_peer
from fedgauss.integrations.gossip.sites import fit_peers
from fedgauss.integrations.gossip.torch_links import TorchLinks

__all__ = ["PeerRound", "PeerRun", "TorchLinks", "fit_peers", "run_peer"]
