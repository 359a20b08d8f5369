"""What refusals, repeats and lies cost a table, through the protocol."""

import re
from contextlib import suppress

import numpy as np
import pytest

from fedgauss.federated.local import LocalSites
from fedgauss.federated.mailbox import federate
from fedgauss.federated.policy import Policy
from fedgauss.federated.rows import SiteRows
from fedgauss.inference.model import Model
from site_rows import ROWS, own, site_of

DIED = Model("died ~ age + dose", family="binomial")
RARE = ROWS.assign(ward=np.where(np.arange(len(ROWS)) == 3, "attic", ROWS.ward))


class Lying(SiteRows):
    """A site that sends other sums at every parameter once its `lies` are set."""

    lies = False

    def reply(self, question, again=False):
        numbers, words = super().reply(question, again)
        if self.lies and question.kind == "ask" and numbers is not None:
            numbers = numbers | {"score": 1.2 * numbers["score"]} if "score" in numbers else numbers
        return numbers, words


class Stopped(Exception):
    """The asker goes away."""


class UntilHeard(LocalSites):
    """Sites whose asker goes away once they have told their first messages."""

    def ask(self, order, contents):
        if order == "hear":
            raise Stopped
        return super().ask(order, contents)


def sites_of(frame, policy=None, sites=LocalSites, **options):
    return sites({name: site_of(own(frame, name), policy or Policy(), **options) for name in "abc"})


def spent(site, name):
    return int(re.search(rf"^{name}: (\d+) of", site.home.ledger.report(), re.MULTILINE)[1])


def test_a_reason_that_depends_on_rows_counts_at_the_site_that_has_it():
    with sites_of(RARE) as sites:
        for times in (1, 2):
            with pytest.raises(ValueError, match="levels must have at least 3 rows"):
                federate(Model("died ~ ward", family="binomial"), sites)
            assert [spent(sites.sites[name], "refusals") for name in "abc"] == [times, 0, 0]
    with sites_of(ROWS.assign(age=ROWS.age.where(np.arange(len(ROWS)) != 2))) as sites:
        with pytest.raises(ValueError, match="missing"):
            federate(DIED, sites)
        assert [spent(sites.sites[name], "refusals") for name in "abc"] == [1, 0, 0]


def test_it_counts_although_the_asker_went_away():
    with sites_of(RARE, sites=UntilHeard) as sites:
        with pytest.raises(Stopped):
            federate(Model("died ~ ward", family="binomial"), sites)
        assert spent(sites.sites["a"], "refusals") == 1


def test_the_rule_on_spans_counts():
    frame = ROWS.assign(other=ROWS.age + 2.0 * (np.arange(len(ROWS)) == 5))
    with sites_of(frame) as sites:
        federate(DIED, sites)
        with pytest.raises(ValueError, match="rest on at least 3 rows"):
            federate(Model("died ~ other", family="binomial"), sites)
        assert [spent(sites.sites[name], "refusals") for name in "abc"] == [1, 0, 0]


@pytest.mark.parametrize(
    "model",
    [
        Model("died ~ nothing", family="binomial"), Model("died ~ cost", family="binomial"),
        Model("died ~ log(1.2345 + years)", family="binomial"), Model("visits ~ age", family="poisson"),
        DIED,
    ],
    ids=["no such column", "a closed column", "a constant", "a family", "too many parameters"],
)  # fmt: skip
def test_other_reasons_do_not(model):
    with sites_of(ROWS, Policy(never=("cost",), families=("binomial",), rows_per_parameter=40)) as sites:
        with pytest.raises(ValueError, match="site 'a'"):
            federate(model, sites)
        assert [spent(sites.sites[name], "refusals") for name in "abc"] == [0, 0, 0]
        assert spent(sites.sites["a"], "tries") == 1


def test_after_so_many_a_table_does_not_even_repeat():
    """A site that lies could have a repeat refused as often as it likes."""
    with sites_of(RARE, Policy(refusals=1)) as sites:
        federate(DIED, sites)
        with pytest.raises(ValueError, match="levels must have"):
            federate(Model("died ~ ward", family="binomial"), sites)
        with pytest.raises(ValueError, match="refuses at most 1 runs for what its rows say"):
            federate(Model("died ~ age", family="binomial"), sites)
        before = {name: [spent(sites.sites["a"], name)] for name in ("tries", "parameters", "matrices")}
        with pytest.raises(ValueError, match="refuses at most 1 runs for what its rows say"):
            federate(DIED, sites)
        assert before == {name: [spent(sites.sites["a"], name)] for name in ("tries", "parameters", "matrices")}


@pytest.mark.parametrize("masked", [False, True])
def test_a_lie_in_a_repeat_costs_every_parameter_that_it_leads_to(monkeypatch, masked):
    with sites_of(ROWS) as sites:
        sites.sites["c"] = site_of(own(ROWS, "c"), rows=Lying)
        federate(DIED, sites, masked=masked)
        honest = spent(sites.sites["a"], "parameters")
        federate(DIED, sites, masked=masked)
        assert spent(sites.sites["a"], "parameters") == honest
        monkeypatch.setattr(Lying, "lies", True)
        with suppress(ValueError):  # lies need not lead to an estimate
            federate(DIED, sites, masked=masked)
        assert spent(sites.sites["a"], "parameters") >= honest + 2
