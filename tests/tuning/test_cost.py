"""The cost of the draws is told before the first of them."""

import re
import threading

from threading import Event
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from pymc_sgmcmc.kernel.estimators import ControlVariates, Plain
from pymc_sgmcmc.model.graphs import numbers_computed
from pymc_sgmcmc.tuning.cost_bounds import CostBounds
from pymc_sgmcmc.tuning.messages import cost_of_draws, in_words, time_of_draws
from pymc_sgmcmc.tuning.regimes import Regime
from pymc_sgmcmc.tuning.report import LoggedLines, Report


def test_passes_are_those_of_the_updates(caplog):
    rng = np.random.default_rng(1)
    y = rng.normal(size=4000)
    with pm.Model():
        seen = pm.Minibatch(y, batch_size=100)
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=seen, total_size=len(y))
        with caplog.at_level("INFO", logger="pymc.sgmcmc"):
            stats = run(sg.CoRVSGLD(), chains=1, draws=30, tune=10).sample_stats
    told = re.search(
        r"Tuned in [\d.]+ s: (\d+) updates a draw, (\d+) batch(?:es)? an update; "
        r"40 draws are ([\d,.]+) passes over the data\.",
        caplog.text,
    )
    updates, batches, passes = (float(x.replace(",", "")) for x in told.groups())
    assert updates == stats["thin"].values[0, -1]
    assert batches == stats["batches"].values[0, -1]
    # Gradients at the anchor of all blocks are kept
    assert passes == float(f"{40 * updates * batches / 40:.3g}")


def test_all_rows_in_place_of_batches_are_told(caplog):
    y = np.random.default_rng(1).normal(size=400)
    for batches, told in ((4, True), (2, False)):
        caplog.clear()
        with pm.Model(), caplog.at_level("INFO", logger="pymc.sgmcmc"):
            mu = pm.Normal("mu", 0, 10)
            pm.Normal("y", mu, 1, observed=pm.Minibatch(y, batch_size=100), total_size=len(y))
            run(sg.CoRVSGLD(batches=batches), chains=1, draws=5, tune=5)
        assert ("Updates take all rows" in caplog.text) == told


def test_what_is_told():
    assert cost_of_draws(10, 20, 1, anchored=False, blocks=1, dimension=3) == ("20 updates a draw.")
    twice = cost_of_draws(1100, 20, 2, anchored=True, blocks=1000, dimension=500_000)
    assert twice.startswith("20 updates a draw, 2 batches an update; 1,100 draws are 88 passes")
    assert "compute_convergence_checks=False" in twice
    many = cost_of_draws(10_000, 20, 3, anchored=True, blocks=118, dimension=3)
    assert many.endswith("3 batches an update; 10,000 draws are 10,200 passes over the data.")


PLAIN = Plain()


def bounds(
    *, gradient=PLAIN, batches=1, blocks=1000, numbers=1, d=10, many=False, exchangeable=False
):
    plan = SimpleNamespace(
        regime=Regime(many, exchangeable),
        gradient=gradient,
        batches=batches,
        centre=np.zeros(d),
        takes_all_rows=lambda n_blocks: batches == n_blocks > 1,
    )
    return CostBounds(plan, SimpleNamespace(n_blocks=blocks, numbers=numbers), remembered=False)


@pytest.mark.parametrize(
    ("gradient", "batches", "thin"),
    [
        (Plain(), 1, 2560),
        (ControlVariates(), 1, 2560),
        (ControlVariates(), 8, 640),
        (ControlVariates(), 100, 40),
        (Plain(), 100, 100),
    ],
)
def test_the_gradients_of_a_draw_are_bounded(gradient, batches, thin):
    assert bounds(gradient=gradient, batches=batches).largest_thin(20) == thin


def test_a_thin_that_costs_too_much_is_no_reason_for_less_than_it():
    assert bounds(batches=100).largest_thin(500) == 500


def test_a_draw_takes_no_more_passes_than_eight_of_all_rows():
    # 12 of 20 batches: 267 updates are 160 passes
    assert bounds(batches=12, blocks=20).largest_thin(20) == 260
    # The updates of all rows themselves are bounded by what they compute
    assert bounds(blocks=1).largest_thin(20) == 2560


@pytest.mark.parametrize("d", [10, 2004])
@pytest.mark.parametrize("gradient", [Plain(), ControlVariates()])
def test_batches_that_are_all_rows_cost_what_all_rows_cost_without_batches(gradient, d):
    kind = {"gradient": gradient, "d": d, "many": d > 512}
    batches = bounds(**kind, batches=20, blocks=20, numbers=500)
    whole = bounds(**kind, blocks=1, numbers=10_000)
    assert batches.passes == whole.passes
    for thin in (20, 160):
        assert batches.largest_thin(thin) == whole.largest_thin(thin)
        assert batches.draws_of_a_trial(thin) == whole.draws_of_a_trial(thin)
    assert batches.updates_of_a_burn_in() == whole.updates_of_a_burn_in()
    # More than most of the batches, which are as many gradients
    assert batches.largest_thin(20) > bounds(**kind, batches=19, blocks=20).largest_thin(20)


def test_a_draw_that_has_all_the_updates_it_may_cost_pays_for_each_batch():
    kind = {"d": 2004, "many": True, "exchangeable": True, "blocks": 20}
    assert bounds(**kind, batches=20).largest_thin(1) == 160 // 20
    assert bounds(**kind, batches=10).largest_thin(1) == 160 // 10


@pytest.mark.parametrize("numbers", [10**5, 10**6, 10**7, 10**8])
def test_what_is_computed_is_bounded(numbers):
    dear = bounds(numbers=numbers)
    thin = dear.first_thin(20)
    assert 5 <= thin <= 20
    assert thin == 5 or thin * numbers <= 2**27
    assert dear.largest_thin(thin) == thin or dear.largest_thin(thin) * numbers <= 2**27
    draws = dear.draws_of_a_trial(thin)
    assert draws == 100 or draws * thin * numbers <= 2**34
    burn_in = dear.updates_of_a_burn_in()
    assert burn_in == 250 or burn_in * numbers <= 2**33
    assert bounds(numbers=numbers, many=True).draws_of_a_trial(20) == dear.draws_of_a_trial(20)
    assert bounds(numbers=numbers, many=True).first_thin(20) == 20
    assert bounds(numbers=numbers, many=True, d=513).updates_of_a_burn_in() == 1000


def test_numbers_of_a_graph_are_those_of_its_results():
    x, y = pt.matrix(shape=(100, 30)), pt.matrix(shape=(30, 7))
    assert numbers_computed([pt.exp(x)]) == 3000
    assert numbers_computed([pt.exp(x), pt.exp(x) + 1]) == 2 * 3000 + 3000 + 1
    # Four times as many multiplications as an eighth
    assert numbers_computed([pt.dot(x, y)]) == 700 * 4
    assert numbers_computed([pt.linalg.cholesky(pt.matrix(shape=(80, 80)))]) == 6400 * 11


def test_what_takes_long_is_spoken_of_meanwhile(monkeypatch):
    monkeypatch.setattr("pymc_sgmcmc.tuning.report._LOOK", 0.01)
    report, said = Report(LoggedLines()), Event()
    monkeypatch.setattr(report, "still", said.set)
    with report.watching():
        assert said.wait(30)
    threads = threading.active_count()
    with pytest.raises(ValueError, match="broke"), report.watching():
        raise ValueError("broke")
    assert threading.active_count() == threads


def test_draws_that_cost_too_much_are_told_before_they_are_made(caplog, monkeypatch):
    monkeypatch.setattr("pymc_sgmcmc.tuning.cost_bounds._DRAW", 1)
    monkeypatch.setattr("pymc_sgmcmc.tuning.check._enough", lambda draws, dimension: 4.0 * draws)
    monkeypatch.setattr("pymc_sgmcmc.tuning.run._LONG", 0.0)
    with pm.Model():
        pm.Normal("mu", 0, 1, shape=2)
        with caplog.at_level("INFO", logger="pymc.sgmcmc"):
            stats = run(sg.SGLD(), chains=1, draws=30, tune=10).sample_stats
    assert np.all(stats["thin"].values == 5)
    told = re.search(
        r"a draw would need (\d+) updates or more.*draws have 5 updates.*NUTS.*thin=\1 takes",
        caplog.text,
    )
    assert int(told[1]) > 5
    assert told.start() < caplog.text.index("5 updates a draw.")


def test_times_are_spelled_in_words():
    assert [in_words(x) for x in (0.123, 99, 200, 7300)] == [
        "about 0.12 s", "about 1.6 minutes", "about 3.3 minutes", "about 2 hours"
    ]  # fmt: skip
    assert [time_of_draws(x) for x in (4, 100)] == ["", " The draws take about 1.7 minutes."]
    assert "about 6.7 minutes. A smaller thin= takes" in time_of_draws(400)
