"""What an exact fit costs: bytes that leave a site, by number of covariates and sites, and time beside statsmodels."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import common
import numpy as np
from common import Figure, Say

ROWS, SITES = 100_000, 8


def table(rows: int, columns: int, sites: int) -> dict[str, Any]:
    """A binary outcome, so many covariates, and a column that says to which site a row belongs."""
    rng = np.random.default_rng(15)
    x = rng.normal(size=(rows, columns))
    signal = -0.5 + x @ rng.normal(0.0, 0.2, columns)
    own = {f"x{j}": x[:, j] for j in range(columns)}
    return own | {"died": (rng.random(rows) < 1 / (1 + np.exp(-signal))).astype(int), "site": np.arange(rows) % sites}


def sent(rows: int, columns: int, sites: int, masked: bool) -> dict[str, Any]:
    """Bytes that one site sends in a whole fit, those of its longest message, and how many times it was asked."""
    from fedgauss.federated.home import Home
    from fedgauss.federated.keys import Key
    from fedgauss.federated.ledger import Ledger
    from fedgauss.federated.local import LocalSites
    from fedgauss.federated.mailbox import federate
    from fedgauss.federated.site import Site
    from fedgauss.federated.wire import encode
    from fedgauss.inference.model import Model

    data, count = table(rows, columns, sites), Counter[str]()

    class Counted(LocalSites):
        """Sites here, of whose first all messages are measured."""

        def ask(self, order: str, contents: Any) -> dict[str, Any]:
            replies = super().ask(order, contents)
            size = len(encode(replies[self.names[0]]))
            count.update(asked=1, total=size)
            count["longest"] = max(count["longest"], size)
            return replies

    with tempfile.TemporaryDirectory() as folder:
        answering = {}
        for k in range(sites):
            own = {name: v[data["site"] == k] for name, v in data.items() if name != "site"}
            home = Home(Key.fresh(), Ledger(Path(folder) / f"{k}.ledger"))
            answering[f"site {k}"] = Site(own, home, say=lambda text: None)
        with Counted(answering) as reached:
            federate(Model("died", family="binomial"), reached, masked=masked, key=Key.fresh())
    return dict(count)


def beside_statsmodels(rows: int, columns: int, clients: int, repeats: int) -> dict[str, Any]:
    """Seconds of `fg.fit` and of statsmodels' GLM with HC0 on the same rows, the quickest of several in turn."""
    import pandas as pd
    import statsmodels.api as sm

    import fedgauss as fg

    frame = pd.DataFrame(table(rows, columns, clients))
    names = [f"x{j}" for j in range(columns)]
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(common.seconds(lambda: fg.fit(frame, "died", "site", "binomial", features=names)))
        design = sm.add_constant(frame[names])
        model = sm.GLM(frame["died"], design, family=sm.families.Binomial())
        theirs.append(common.seconds(lambda model=model: model.fit(cov_type="HC0")))
    return {"ours": min(ours), "theirs": min(theirs)}


def figures(say: Say) -> list[Figure]:
    """The figures of this benchmark."""
    found = []
    for columns, sites in ((5, 3), (20, 8), (50, 8), (20, 40), (50, 40)):
        say(f"{columns} covariates, {sites} sites")
        for masked in (False, True):
            size = sent(20_000, columns, sites, masked)
            name = f"{columns} covariates, {sites} sites{', masked' * masked}"
            found += [
                Figure(f"{name}: times asked", size["asked"]),
                Figure(f"{name}: a site sends in all", size["total"] / 1e3, "kB"),
                Figure(f"{name}: its longest message", size["longest"] / 1e3, "kB"),
            ]
    say("beside statsmodels")
    arguments = {"rows": ROWS, "columns": 20, "clients": SITES, "repeats": 7}
    time = common.fresh("exact", "beside_statsmodels", arguments, one_core=True)
    found.append(Figure(f"fg.fit over statsmodels' GLM, {ROWS:,} rows, one core", time["ours"] / time["theirs"], "x"))
    found.append(Figure("fg.fit", 1e3 * time["ours"], "ms"))
    return [*found, Figure("load of the machine", os.getloadavg()[1])]


if __name__ == "__main__":
    for figure in figures(print):
        print(f"{figure.quantity:<60} {figure.value:8.3g} {figure.unit} {figure.goal}")
