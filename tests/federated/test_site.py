"""A site alone: orders in turn, whom it answers, what it tells its owner and nobody else, and the state it is in."""

import json

import numpy as np
import pytest

from fedgauss.federated.journal import Journal
from fedgauss.federated.keys import Key
from fedgauss.federated.ledger import Ledger
from fedgauss.federated.local import LocalSites
from fedgauss.federated.mailbox import federate
from fedgauss.federated.party import RunRefused
from fedgauss.federated.plan import Plan
from fedgauss.federated.policy import Policy
from fedgauss.federated.refusal import Refused
from fedgauss.federated.rows import SiteRows
from fedgauss.federated.site import Site
from fedgauss.inference.model import Model
from site_rows import ROWS, home, own, site_of

MODEL = Model("cost ~ age", family="gaussian")
ASKER = Key(b"a" * 32)
SECRET = "dose 7 of patient 12"


def plan_of(nonce="1", masked=True, sites=("a", "b"), asker="me"):
    return Plan(MODEL, sites, masked, asker, nonce)


def join(plan, name="a", asker=ASKER):
    return {"plan": plan.to_wire(), "name": name, "key": asker.public, "signature": asker.sign(plan.statement)}


def sites_of(policy=None, frame=ROWS, **parts):
    return {name: site_of(own(frame, name), policy, **parts) for name in "ab"}


def entries(sites, plan):
    """What all sites say to a plan."""
    return [site.answer("join", join(plan, name))["entry"] for name, site in sites.items()]


def error(site, order, content):
    return site.answer(order, content)["error"]


def test_orders_come_in_turn():
    sites, plan = sites_of(), plan_of()
    for order in ("meet", "open", "hear", "x" * 100):
        words = f"orders must come in turn, once each; 'join' is due, got {order[:60]!r}."
        assert error(sites["a"], order, {}) == words
    roster = entries(sites, plan)
    assert "'meet' is due, got 'open'" in error(sites["a"], "open", {})
    assert "'join' is due, got 'meet'" in error(sites["a"], "meet", {"roster": roster, "past": []})
    roster = entries(sites, plan)  # whoever asks may begin again at any time
    first = {name: site.answer("meet", {"roster": roster, "past": []}) for name, site in sites.items()}
    assert first["a"].keys() == {"commitment", "head", "length", "signature"}
    assert "'open' is due, got 'hear'" in error(sites["a"], "hear", {})
    opening = sites["b"].answer("open", {"commitments": first})["opening"]
    assert len(bytes.fromhex(opening["salt"])) == 16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"more": 1}, "the order 'join' must have plan and name and key and signature, and nothing else."),
        ({"name": 1}, "'name' of the order 'join' must be str; it is int."),
        ({"plan": []}, "'plan' of the order 'join' must be dict; it is list."),
        ({"name": "x" * 70}, f"a site must be among the sites of the run; {'x' * 60!r} is not."),
        ({"signature": "00" * 64}, "who asks must have signed the plan of the run; this signature is of something"),
    ],
)
def test_an_order_has_its_fields_and_a_signature(change, words):
    site = sites_of()["a"]
    assert error(site, "join", join(plan_of()) | change).startswith(words)
    assert "must have plan" in error(site, "join", [])
    assert "entry" in site.answer("join", join(plan_of()))


def test_who_may_ask():
    site = sites_of(Policy(askers={"me": ASKER.public}))["a"]
    assert "entry" in site.answer("join", join(plan_of()))
    for asker, key in (("me", Key(b"b" * 32)), ("you", ASKER)):
        assert f"names who may ask; {asker!r} with the key" in error(site, "join", join(plan_of(asker=asker), "a", key))
    trusting = sites_of()["a"]
    assert "entry" in trusting.answer("join", join(plan_of()))
    assert "at the first contact" in error(trusting, "join", join(plan_of(), "a", Key(b"b" * 32)))


def test_what_the_policy_says_of_plans():
    sites = {name: site_of(own(ROWS, name), Policy(fewest_sites=3)) for name in "ab"}
    assert "at least 3 sites; this one has 2" in error(sites["a"], "join", join(plan_of()))
    assert "entry" in sites["a"].answer("join", join(plan_of(sites=("a", "b", "c"))))


def test_with_whom_a_site_takes_part():
    other = home(name="b")
    for pinned, words in (({"b": other.key.public}, None), ({"b": "0f" * 32}, "'b' with the key"), ({}, "'b' with")):
        policy = Policy(sites=pinned)
        sites = {"a": site_of(own(ROWS, "a"), policy), "b": site_of(own(ROWS, "b"), where=other)}
        roster = entries(sites, plan_of())
        reply = sites["a"].answer("meet", {"roster": roster, "past": []})
        assert words is None or f"names the sites of its runs by their keys; {words}" in reply["error"]
        assert ("commitment" in reply) == (words is None)


def test_a_site_meets_under_the_entry_that_it_has_just_signed():
    sites, plan = sites_of(), plan_of()
    old, new = entries(sites, plan), entries(sites, plan)
    words = error(sites["a"], "meet", {"roster": [old[0], new[1]], "past": []})
    assert words == "the roster must have the entry that this site, 'a', has signed; it has not."


def test_a_secret_that_cannot_be_read(tmp_path):
    sites, plan = sites_of(Policy(secret=str(tmp_path / "none"))), plan_of()
    roster = entries(sites, plan)
    assert "this site's secret could not be read" in error(sites["a"], "meet", {"roster": roster, "past": []})


class Broken(SiteRows):
    """Rows whose code raises something with a row in its words."""

    def reply(self, question, again=False):
        raise KeyError(SECRET)


class Wordy(SiteRows):
    """Rows that have much to say."""

    def reply(self, question, again=False):
        raise Refused("x" * 2_000)


def test_what_a_site_s_own_code_raises_is_for_its_owner():
    said = []
    sites = sites_of(rows=Broken, say=said.append)
    meet = {"roster": entries(sites, plan_of()), "past": []}
    assert error(sites["a"], "meet", meet) == "the order 'meet' failed at this site. Its owner was told why."
    assert SECRET in said[-1]
    assert "Traceback" in said[-1]
    assert "fedgauss" in said[-1]
    again = {"roster": entries(sites, plan_of("2")), "past": []}  # the run has ended, and the table is free
    assert "failed at this site" in error(sites["a"], "meet", again)


def test_a_reason_is_cut():
    sites = sites_of(rows=Wordy)
    assert error(sites["a"], "meet", {"roster": entries(sites, plan_of()), "past": []}) == "x" * 1_000


def test_an_owner_sees_who_takes_part_on_standard_error(capsys):
    sites = {name: Site(own(ROWS, name), home(name=name)) for name in "ab"}
    federate(MODEL, LocalSites(sites), key=ASKER)
    told = capsys.readouterr().err
    assert told.count("A run of 2 sites, asked for by 'coordinator':") == 2
    assert all(name in told for name in ("  a  ", "  b  "))


@pytest.mark.parametrize("masked", [False, True])
def test_numbers_too_large_to_mask_are_not_sent(masked):
    frame = ROWS.assign(cost=1e28 * (1 + np.arange(len(ROWS)) % 7))
    with LocalSites(sites_of(frame=frame)) as sites, pytest.raises(ValueError, match="could not add up its columns"):
        federate(MODEL, sites, masked=masked)


def test_a_run_whose_past_is_all_of_it_has_no_next_question(tmp_path):
    homes, journal = {name: home(name=name) for name in "ab"}, tmp_path / "rounds.jsonl"
    sites = {name: site_of(own(ROWS, name), where=homes[name]) for name in "ab"}
    federate(MODEL, LocalSites(sites), key=ASKER, asker="me", masked=True, journal=Journal(journal))
    plan = plan_of("2")
    roster = entries(sites, plan)
    past = Journal(journal)._runs
    words = "the past of this run is the whole of it; nothing is left to ask."
    assert error(sites["a"], "meet", {"roster": roster, "past": past}) == words


def test_a_state_is_empty_between_runs_and_must_be_one_that_the_site_was_in():
    sites, plan = sites_of(), plan_of()
    assert sites["a"].state() == {"heard": []}
    sites["a"].restore({"heard": []})
    roster = entries(sites, plan)
    state = sites["a"].state()
    assert [order for order, _ in state["heard"]] == ["join"]
    assert (state["message"], state["begun"]) == (None, False)
    other = site_of(own(ROWS, "a"), where=sites["a"].home)
    state["heard"].append(["meet", {"roster": [], "past": []}])
    with pytest.raises(Refused, match="the roster must"):
        other.restore(state)
    assert not other._ledger.paused  # and it goes on as if nothing had been
    assert "commitment" not in other.answer("join", join(plan))
    other.home.ledger.note_asker("you", "key")
    assert "you" in other.home.ledger.report()
    assert len(roster) == 2


class Against(SiteRows):
    """Rows that have something against every run."""

    def reply(self, question, again=False):
        return None, {"refused": ["no"]}


def test_a_run_that_was_refused_has_ended_in_the_ledger():
    sites = sites_of(rows=Against)
    with pytest.raises(RunRefused) as refused:
        federate(MODEL, LocalSites(sites), key=ASKER)
    assert refused.value.reasons == {"a": ["no"], "b": ["no"]}
    lines = [json.loads(line.rpartition(" ")[0]) for line in sites["a"].home.ledger.path.read_text().splitlines()]
    assert [line["is"] for line in lines[-2:]] == ["reasons", "refuse"]


def test_a_table_is_free_while_its_site_is_put_away():
    sites, plan = sites_of(), plan_of()
    roster = entries(sites, plan)
    assert "commitment" in sites["a"].answer("meet", {"roster": roster, "past": []})
    place = sites["a"].home.ledger.path
    with pytest.raises(Refused, match="another process holds"):
        Ledger(place).resume(plan.run)
    sites["a"].put_away()
    other = Ledger(place)
    other.resume(plan.run)
    other.finish(answered=False)
