"""Linear audits of reported leakages against a full linear program, enumeration and simulated populations."""

import numpy as np
import pytest
from scipy.optimize import linprog

from reprise.labs import rubric_audits as audits
from reprise.labs import rubric_judges as judges

GAMMAS = judges.GAMMAS
TABLE_18 = np.array([0.0922, 0.0158, 0.0032, 0.0011, 0.0005])


def full_program(reported, curves):
    """The same linear program with all columns at once."""
    count, gammas = curves.kept.shape
    slack = np.ones((gammas, 1))
    rows = np.vstack([np.hstack([curves.kept.T, -slack]), np.hstack([-curves.kept.T, -slack])])
    return linprog(np.append(np.zeros(count), 1), A_ub=rows, b_ub=np.concatenate([reported, -reported])).fun


@pytest.mark.parametrize("parents, chains", [(1, False), (4, False), (2, True), (3, True)])
def test_columns_taken_in_one_by_one_reach_the_optimum_of_all(parents, chains):
    curves = audits.violated_children(GAMMAS, parents, chains)
    assert audits.closest(TABLE_18, curves).error == pytest.approx(full_program(TABLE_18, curves), abs=1e-9)


def test_curves_of_one_parent_are_the_two_retentions():
    curves = audits.violated_children([0, 1, 2], most_parents=1)
    kept = {name: row.tolist() for name, row in zip(curves.names, curves.kept, strict=True)}
    # an unmet parent at its highest score keeps .5 + .5 * retention^gamma
    assert kept == {
        "weak 0": pytest.approx([1, 0.6, 0.36]),
        "weak 0.5": pytest.approx([1, 0.8, 0.68]),
        "strong 0": pytest.approx([1, 0.2, 0.04]),
        "strong 0.5": pytest.approx([1, 0.6, 0.52]),
    }


def test_an_activation_edge_alone_makes_no_case():
    curves = audits.violated_children(GAMMAS, 2)
    assert not any(set(name.split(" x ")) <= {"activation 0", "activation 0.5"} for name in curves.names)


def test_any_curve_of_the_model_lies_within_the_curves():
    rng = np.random.default_rng(0)
    roots = audits.violated_children(GAMMAS, 2)
    for _ in range(20):
        q = rng.random(2) * [0.5, 1.0]
        retention = rng.choice([0.6, 0.2], 2)
        curve = np.prod(
            [q_j + (1 - q_j) * r_j ** np.array(GAMMAS) for q_j, r_j in zip(q, retention, strict=True)], axis=0
        )
        assert audits.closest(curve, roots).error < 1e-9
        assert audits.closest(curve, audits.any_monotone(GAMMAS, 2000)).error < 2e-4  # rates on a grid


def test_root_parents_cannot_give_table_18_and_chains_can():
    roots, chains = audits.violated_children(GAMMAS), audits.violated_children(GAMMAS, 3, chains=True)
    assert audits.closest(TABLE_18, roots).error == pytest.approx(0.000171, abs=1e-6)
    assert audits.closest(TABLE_18, audits.any_monotone(GAMMAS)).error > 0.00015
    fit = audits.closest(TABLE_18, chains)
    assert fit.error < 1e-9 and fit.values == pytest.approx(TABLE_18) and (fit.mass >= 0).all()


def test_the_range_of_mass_holds_what_it_claims():
    chains = audits.violated_children(GAMMAS, 3, chains=True)
    fit = audits.closest(TABLE_18, chains)
    many = chains.parents >= 3
    least, most = audits.mass_range(TABLE_18, chains, many, 0.00005, fit)
    share = fit.mass[many].sum() / TABLE_18[0]
    assert 0.5 < least <= share <= most <= 1
    exactly, _ = audits.mass_range(TABLE_18, chains, many, 0.0, fit)
    assert exactly >= least
    roots = audits.violated_children(GAMMAS)
    assert np.isnan(
        audits.mass_range(TABLE_18, roots, roots.parents == 1, 0.00005, audits.closest(TABLE_18, roots))
    ).all()


def test_a_simulated_population_of_roots_is_within_reach():
    """Leakage of a real corpus, whose rubrics have a single level of parents, fits to numerical error."""
    graphs = [g for g in judges.make_rubrics(300, judges.TYPE_MIX, 1) if len(g.levels) == 2]
    report = judges.measure(judges.score(graphs, judges.POPULATIONS["uniform scores"], 8, 1), resamples=2)
    leakages = [report.methods[f"gear {gamma:g}"].leakage.estimate for gamma in GAMMAS]
    assert audits.closest(leakages, audits.violated_children(GAMMAS)).error < 1e-9


def test_bounds_by_hand():
    assert audits.most_single_parent_mass(0.0922, 0.0032) == pytest.approx(0.17354, abs=1e-5)
    # .8123 of satisfied edges among .4891 of all edges, .1877 among .5109
    assert audits.satisfied_rate_ratio(0.1877, 0.7 / 1.37) == pytest.approx(4.5214, abs=1e-4)
