"""Who carries the messages: whom it asks, what it makes of replies that are none, and how far it says it is."""

import pytest

from fedgauss.federated.keys import Key
from fedgauss.federated.local import LocalSites
from fedgauss.federated.mailbox import LostSite, federate
from fedgauss.federated.party import RunRefused
from fedgauss.inference.model import Model
from site_rows import ROWS, own, site_of

MODEL = Model("cost ~ age", family="gaussian")
ASKER = Key(b"a" * 32)


class Changed(LocalSites):
    """Sites whose replies to an order a test changes."""

    def __init__(self, order=None, change=lambda replies: replies):
        super().__init__({name: site_of(own(ROWS, name), say=lambda text: None) for name in "ab"})
        self.order, self.change, self.asked = order, change, []

    def ask(self, order, contents):
        self.asked.append((order, contents))
        replies = super().ask(order, contents)
        return self.change(replies) if order == self.order else replies


def test_it_says_how_far_it_is():
    told, sites = [], Changed()
    fit = federate(MODEL, sites, key=ASKER, tick=lambda *one: told.append(one))
    rounds = sum(order == "hear" for order, _ in sites.asked)
    assert told == [*(("rounds", done, max(16, done + 1)) for done in range(rounds)), ("rounds", rounds, rounds)]
    assert fit.names == ("Intercept", "age")
    assert [order for order, _ in sites.asked[:4]] == ["join", "meet", "open", "hear"]
    assert all(list(contents) == ["a", "b"] for _, contents in sites.asked)


def test_sites_are_in_the_order_of_their_names_whatever_the_way_to_them():
    class Backwards(Changed):
        names = ("b", "a")

    sites = Backwards()
    federate(MODEL, sites, key=ASKER)
    assert sites.asked[0][1]["a"]["plan"]["sites"] == ["a", "b"]


def test_of_masked_sites_it_knows_no_rows_and_says_so():
    plain, masked = (federate(MODEL, Changed(), key=ASKER, masked=hidden) for hidden in (False, True))
    assert plain.facts["Rows per client"]
    assert masked.facts == {name: fact for name, fact in plain.facts.items() if name != "Rows per client"}
    assert [any("Sums were masked" in note for note in fit.notes) for fit in (plain, masked)] == [False, True]


def test_every_run_is_signed_and_another_one():
    plans = []
    for _ in range(2):
        sites = Changed()
        federate(MODEL, sites, key=ASKER, asker="me")
        joined = sites.asked[0][1]
        assert {content["name"] for content in joined.values()} == {"a", "b"}
        assert joined["a"]["key"] == ASKER.public
        plans.append(joined["a"]["plan"])
    assert plans[0]["nonce"] != plans[1]["nonce"]
    assert all(len(bytes.fromhex(plan["nonce"])) == 16 for plan in plans)
    assert [plan["asker"] for plan in plans] == ["me", "me"]
    sites = Changed()
    federate(MODEL, sites, key=ASKER, nonce="mine")
    assert sites.asked[0][1]["a"]["plan"]["nonce"] == "mine"


def test_without_a_key_it_has_one_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keys = []
    for _ in range(2):
        sites = Changed()
        federate(MODEL, sites, asker="me")
        keys.append(sites.asked[0][1]["a"]["key"])
    assert keys[0] == keys[1] == Key.read(tmp_path / "fedgauss" / "me.key").public


@pytest.mark.parametrize("order", ["join", "meet", "open", "hear"])
@pytest.mark.parametrize("change", [lambda replies: {"a": replies["a"]}, lambda replies: replies | {"b": "no"}])
def test_a_site_without_a_reply_has_a_name(order, change):
    with pytest.raises(LostSite, match=f"site 'b' gave no reply to '{order}'. The run ended") as lost:
        federate(MODEL, Changed(order, change), key=ASKER)
    assert lost.value.site == "b"
    assert str(lost.value).startswith("site 'b' gave no reply")


def test_all_reasons_come_together_and_can_be_shown():
    long = "\x1b[2J" + "x" * 2_000
    with pytest.raises(RunRefused) as refused:
        federate(MODEL, Changed("meet", lambda _: {"a": {"error": long}, "b": {"error": 5}}), key=ASKER)
    assert refused.value.reasons == {"a": [("\\x1b[2J" + "x" * 2_000)[:1_000]], "b": ["5"]}


def test_a_reply_of_a_site_that_nobody_asked_is_left_out():
    fit = federate(MODEL, Changed("hear", lambda replies: replies | {"c": {"commitment": "none"}}), key=ASKER)
    assert fit.names == ("Intercept", "age")


def test_a_level_is_checked_before_anybody_is_asked():
    sites = Changed()
    with pytest.raises(ValueError, match="level must lie"):
        federate(MODEL, sites, key=ASKER, level=1.5)
    assert sites.asked == []
    low, high = (federate(MODEL, Changed(), key=ASKER, level=level).conf_int()[0] for level in (0.5, 0.99))
    assert high[0] < low[0] < low[1] < high[1]
