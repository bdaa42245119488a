"""Student's t distribution against SciPy."""

import pytest

from visioneval.analysis.stats.basic import MANY, t_quantile, t_two_sided_p

DEGREES = (1, 2, 3, 4, 5, 19, 20, 199, 999, MANY - 1)


@pytest.mark.parametrize("df", DEGREES)
@pytest.mark.parametrize("p", [0.01, 0.5, 0.8, 0.975, 0.9995])
def test_quantiles_equal_scipys(df: int, p: float) -> None:
    from scipy import stats

    assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("df", DEGREES)
@pytest.mark.parametrize("t", [0.0, -0.3, 1.0, 2.5, 8.0])
def test_p_values_equal_scipys(df: int, t: float) -> None:
    from scipy import stats

    assert t_two_sided_p(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), abs=1e-12)


@pytest.mark.parametrize("df", [MANY, 5000, 10**6])
def test_many_degrees_of_freedom_come_close_to_scipy(df: int) -> None:
    from scipy import stats

    assert t_quantile(0.975, df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-6)
    assert t_two_sided_p(2.2, df) == pytest.approx(2 * stats.t.sf(2.2, df), abs=1e-7)


def test_bad_input_is_refused() -> None:
    for p, df in ((0.975, 0), (0.0, 5), (1.0, 5)):
        with pytest.raises(ValueError, match=r"degrees of freedom|between 0 and 1"):
            t_quantile(p, df)
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_two_sided_p(1.0, 0)
