"""Runs that stop and continue: a site that is put away between two orders, and a mailbox that was killed."""

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.federated.journal import Journal
from fedgauss.federated.mailbox import federate
from fedgauss.federated.wire import decode, encode
from fedgauss.inference.model import Model
from site_rows import ROWS, Sites, own, site_of

MODEL = Model("died ~ scale(age) + dose + ward", family="binomial")


class PutAway(Sites):
    """Between two orders there is nothing of a site but its state, its rows and its home."""

    def ask(self, order, contents):
        replies = super().ask(order, contents)
        for name, site in self.sites.items():
            state = decode(encode(site.state()))
            site.put_away()
            self.sites[name] = site_of(own(ROWS, name), site.policy, site.home)
            self.sites[name].restore(state)
        return replies


@pytest.mark.parametrize("masked", [False, True])
def test_sites_that_are_put_away_between_two_orders_give_the_same_fit(masked):
    with PutAway() as sites:
        found = federate(MODEL, sites, masked=masked)
    pooled = fg.fit(ROWS, MODEL, client="h")
    np.testing.assert_allclose(found.params, pooled.params, rtol=1e-10)
    np.testing.assert_allclose(found.cov, pooled.cov, rtol=1e-9, atol=1e-12)


class Killed(Exception):
    """The end of a mailbox."""


class Mortal(Sites):
    """Sites whose mailbox is killed before an order is sent for the last time."""

    def __init__(self, order, times, homes=None):
        super().__init__(homes=homes)
        self.order, self.times = order, times

    def ask(self, order, contents):
        self.times -= order == self.order
        if self.times == 0:
            raise Killed
        return super().ask(order, contents)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("order", "times"), [("meet", 1), ("open", 4), ("hear", 7), ("open", 9), ("hear", 12), ("hear", 13), ("hear", 14)]
)
def test_a_mailbox_that_was_killed_continues(tmp_path, masked, order, times):
    """The rounds that were kept are not asked for again, and the fit is that of an undisturbed run to the bit."""
    journal = tmp_path / "rounds.jsonl"
    sites = Mortal(order, times)
    homes = {name: site.home for name, site in sites.sites.items()}
    with pytest.raises(Killed):
        federate(MODEL, sites, masked=masked, journal=Journal(journal))
    for home in homes.values():
        home.close()  # as when the processes of sites end
    kept = len(Journal(journal))
    assert kept == {"meet": 0, "open": times - 1, "hear": times}[order]
    again = Sites(homes=homes)
    found = federate(MODEL, again, masked=masked, journal=Journal(journal))
    with Sites() as others:
        undisturbed = federate(MODEL, others, masked=masked)
    assert sum(one == "open" for one, _ in again.said) + kept == sum(one == "open" for one, _ in others.said)
    np.testing.assert_array_equal(found.params, undisturbed.params)
    np.testing.assert_array_equal(found.cov, undisturbed.cov)


def test_a_mailbox_that_has_all_rounds_asks_sites_for_an_entry_alone(tmp_path):
    """What it found had been lost, and all that leads to it had been kept."""
    journal = tmp_path / "rounds.jsonl"
    with Sites() as sites:
        found = federate(MODEL, sites, journal=Journal(journal))
        rounds = journal.read_bytes()
    homes = {name: site.home for name, site in sites.sites.items()}
    journal.write_bytes(rounds)
    again = Sites(homes=homes)
    np.testing.assert_array_equal(federate(MODEL, again, journal=Journal(journal)).params, found.params)
    assert {order for order, _ in again.said} == {"join"}


def test_a_journal_of_something_else_or_that_was_changed_is_not_used(tmp_path):
    journal = tmp_path / "rounds.jsonl"
    sites = Mortal("hear", 5)
    homes = {name: site.home for name, site in sites.sites.items()}
    with pytest.raises(Killed):
        federate(MODEL, sites, journal=Journal(journal))
    for home in homes.values():
        home.close()
    changed = journal.read_text().replace('"reasons":[]', '"reasons":["none"]')
    journal.write_text(changed)
    with pytest.raises(ValueError, match="the message of site 'a' in round 1 is not the one that it committed to"):
        federate(MODEL, Sites(homes=homes), journal=Journal(journal))
    other = Model("cost ~ age", family="gaussian")
    found = federate(other, Sites(homes=homes), journal=Journal(journal))
    np.testing.assert_allclose(found.params, fg.fit(ROWS, other, client="h").params, rtol=1e-10)
