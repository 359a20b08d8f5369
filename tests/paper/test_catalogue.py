"""Results by name."""

import pytest

from fedgauss.paper.result import SCALES, catalogue, chosen, scale_named


def test_no_name_means_all_and_order_is_the_papers():
    assert [result.name for result in chosen([])] == list(catalogue())
    assert [r.name for r in chosen(["connection", "figure1_left", "connection"])] == ["figure1_left", "connection"]


@pytest.mark.parametrize(("name", "nearest"), [("figure2", "figure2_phase"), ("hetero", "heterogeneity")])
def test_an_unknown_name_gets_the_list_and_the_nearest(name, nearest):
    with pytest.raises(ValueError, match="a name must be one of") as caught:
        chosen(["figure1_left", name])
    assert f"Did you mean {nearest}" in str(caught.value)
    assert all(known in str(caught.value) for known in catalogue())


def test_a_hint_is_given_only_where_it_helps():
    with pytest.raises(ValueError, match="Put spaces between names: connection heterogeneity"):
        chosen(["connection,heterogeneity"])
    with pytest.raises(ValueError, match="a name must be one of") as caught:
        chosen(["§"])
    assert "Did you mean" not in str(caught.value)
    assert all(known in str(caught.value) for known in catalogue())


def test_letters_may_be_large():
    assert [r.name for r in chosen(["Figure1_LEFT"])] == ["figure1_left"]
    assert scale_named("Quick") is SCALES["quick"]


def test_an_unknown_scale_gets_the_list():
    with pytest.raises(ValueError, match="scale must be one of 'quick', 'paper', 'large'; got 'huge'"):
        scale_named("huge")
    assert scale_named("quick") is SCALES["quick"]
