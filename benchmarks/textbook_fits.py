"""Forty fits of textbooks, each at sites: how many run, masked and not, and what stops the others.

The list was drawn up and committed before any rule about what sites refuse was chosen from it. It has regressions of
textbooks and of packages' own examples, with the formula printed there as far as the grammar of formulas has it (means
over groups and random effects are left away, `happy` of four answers is one of two), of tables of 90 rows and more that
have an estimate when all rows are together, in families of all kinds. Its data
come with R packages (`textbook/make.R` and `tests/inference/r_datasets/make.R` made the files) and with statsmodels.

Sites are a column of the table where it has one with three to eight values (a hospital, a region, a laboratory).
Where it has one with more (a school, a state, a patient), "school/8" deals its values to eight sites in the order of
their first rows. Elsewhere "/5" deals rows to five sites: row i goes to site i mod 5. There are three sites below 250
rows, four below 500, five below 1,000, six below 2,000 and eight above.

    python benchmarks/textbook_fits.py
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pandas as pd
import statsmodels.api as sm

from fedgauss.federated.home import Home
from fedgauss.federated.keys import Key
from fedgauss.federated.ledger import Ledger
from fedgauss.federated.local import LocalSites
from fedgauss.federated.mailbox import federate
from fedgauss.federated.site import Site
from fedgauss.inference.model import Model

FOLDERS = (Path(__file__).parent / "textbook", Path(__file__).parents[1] / "tests" / "inference" / "r_datasets")
SITE, RAN = "site", "ran"


class AtSites(Protocol):
    """A fit at sites; `frame()` has a column `SITE`."""

    @property
    def formula(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def options(self) -> dict[str, Any]: ...

    def frame(self) -> pd.DataFrame: ...


class Textbook(NamedTuple):
    """A fit: the table, the model, and what makes the sites."""

    table: str
    formula: str
    family: str
    sites: str = SITE  # a column, or "column/K", or "/K"
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def frame(self) -> pd.DataFrame:
        """Rows with a site each; rows without one are left out."""
        rows = table(self.table)
        column, _, k = self.sites.partition("/")
        of = rows[column] if column else pd.Series(range(len(rows)))
        if k:
            of = pd.Series(pd.factorize(of)[0] % int(k))
        return rows.drop(columns=[column, SITE], errors="ignore").assign(**{SITE: "s" + of.astype(str).to_numpy()})


LIST = [
    # The table has a column of sites.
    Textbook("penguins", "mass ~ flipper * sex + depth", "gaussian"),
    Textbook("schooldays", "absent ~ race + gender + learner", "negative_binomial"),
    Textbook("bmt", "days ~ group + fab + age * donor", "cox", options={"event": "event"}),
    Textbook("mmmec", "deaths ~ uvb", "poisson", options={"exposure": "expected"}),
    Textbook("grouseticks", "ticks ~ height", "poisson"),
    Textbook("womenlf", "partic ~ hincome + children", "multinomial"),
    Textbook("snails", "deaths ~ species + exposure + humidity", "binomial", options={"trials": "n"}),
    Textbook("ricefarms", "output ~ log(size) + log(seed) + log(labour)", "gamma", options={"link": "log"}),
    Textbook("chile", "vote ~ sex + age + education + statusquo", "multinomial", "region"),
    Textbook("aids2", "days ~ category + sex + age", "cox", "state", {"event": "died"}),
    Textbook("coop", "conc ~ specimen + batch", "gaussian", "lab"),
    Textbook("fatalities", "rate ~ beertax + drinkage + punish + miles + unemp + log(income)", "gaussian", "year"),
    Textbook("arabidopsis", "fruits ~ nutrient * clipping + rack + status", "negative_binomial", "region"),
    Textbook("diet", "chd ~ energy + height + weight", "poisson", "job", {"exposure": "years"}),
    Textbook("lanza", "grade ~ treatment", "multinomial", "study"),
    Textbook("chfls", "happy ~ age + education + health + log(income + 1)", "binomial", "region"),
    # Values of a column are dealt to the sites.
    Textbook("lung", "days ~ age + sex + ecog + karno + loss", "cox", "inst/3", {"event": "died"}),
    Textbook("nlschools", "lang ~ iq + ses + comb", "gaussian", "class/8"),
    Textbook("contraception", "use ~ age + age**2 + urban + children", "binomial", "district/6"),
    Textbook("caschools", "score ~ ratio + english + lunch", "gaussian"),
    Textbook(
        "guns", "lviolent ~ law + prisoners + density + income + population + afam + cauc + male", "gaussian", "state/6"
    ),
    Textbook("epil", "seizures ~ lbase * treatment + lage + fourth", "poisson", "subject/3"),
    Textbook("sleepstudy", "reaction ~ days", "gaussian", "subject/3"),
    # Rows are dealt to the sites.
    Textbook(
        "colon",
        "days ~ rx + sex + age + obstruct + perfor + adhere + nodes + C(differ) + C(extent) + surg",
        "cox",
        "/5",
        {"event": "died"},
    ),
    Textbook("veteran", "days ~ trt + cell + karno + diagtime + age + prior", "cox", "/3", {"event": "died"}),
    Textbook("pbc", "days ~ age + edema + log(bili) + log(albumin) + log(protime)", "cox", "/4", {"event": "died"}),
    Textbook("gbsg", "days ~ age + meno + size + grade + nodes + pgr + er + hormon", "cox", "/5", {"event": "event"}),
    Textbook("birthwt", "low ~ age + lwt + race + smoke + ptd + ht + ui + ftv", "binomial", "/3"),
    Textbook(
        "boston",
        "lmedv ~ crim + zn + indus + chas + nox**2 + rm**2 + age + log(dis) + log(rad) + tax + ptratio + black"
        " + log(lstat)",
        "gaussian",
        "/5",
    ),
    Textbook(
        "pima",
        "diabetes ~ pregnant + glucose + pressure + triceps + insulin + mass + pedigree + age",
        "binomial",
        "/5",
    ),
    Textbook("medicaid", "visits ~ .", "poisson", "/5"),
    Textbook("mroz", "lfp ~ k5 + k618 + age + wc + hc + lwg + inc", "binomial", "/5"),
    Textbook("salaries", "salary ~ rank + discipline + yrs_since_phd + yrs_service + sex", "gaussian", "/4"),
    Textbook(
        "swisslabor",
        "participation ~ income + age + age**2 + education + youngkids + oldkids + foreign",
        "binomial",
        "/5",
        {"link": "probit"},
    ),
    Textbook(
        "cps1985",
        "lwage ~ education + experience + experience**2 + ethnicity + region + gender + occupation + sector + union"
        " + married",
        "gaussian",
        "/5",
    ),
    Textbook(
        "fair",
        "affair ~ occupation + educ + occupation_husb + rate_marriage + age + yrs_married + children + religious",
        "binomial",
        "/8",
    ),
    Textbook("randhie", "mdvis ~ lncoins + idp + lpi + fmde + physlm + disea + hlthg + hlthf + hlthp", "poisson", "/8"),
    Textbook("anes96", "PID ~ logpopul + selfLR + age + educ + income", "multinomial", "/5"),
    Textbook(
        "star98",
        "NABOVE ~ LOWINC + PERASIAN + PERBLACK + PERHISP + PCTCHRT + PCTYRRND + PERMINTE*AVYRSEXP*AVSALK"
        " + PERSPENK*PTRATIO*PCTAF",
        "binomial",
        "/4",
        {"trials": "taught"},
    ),
    Textbook("engel", "foodexp ~ income", "gaussian", "/3"),
]


def table(name: str) -> pd.DataFrame:
    """A table of an R package as it is stored, or one of statsmodels' own."""
    for folder in FOLDERS:
        if (folder / f"{name}.csv").exists():
            return pd.read_csv(folder / f"{name}.csv", keep_default_na=False, na_values=[""])
    rows = getattr(sm.datasets, name).load_pandas().data
    if name == "fair":
        rows["affair"] = (rows["affairs"] > 0).astype(int)
    if name == "star98":
        rows["taught"] = rows["NABOVE"] + rows["NBELOW"]
    return rows


def run(fit: AtSites, masked: bool) -> str:
    """`RAN`, or the reasons why sites did not answer; the one place that knows how a fit at sites is started."""
    model = Model(fit.formula, family=fit.family, missing="drop", errors="model", **fit.options)
    with tempfile.TemporaryDirectory() as folder:
        homes = (Home(Key.fresh(), Ledger(Path(folder) / f"{k}.ledger")) for k in itertools.count())
        sites = {
            str(name): Site(rows.drop(columns=SITE), home, say=lambda text: None)
            for (name, rows), home in zip(fit.frame().groupby(SITE), homes, strict=False)
        }
        try:
            with LocalSites(sites) as reached:
                federate(model, reached, masked=masked, key=Key.fresh())
        except ValueError as error:
            return str(error)
    return RAN


def main() -> None:
    """Every fit masked and not, with what stopped it."""
    counts: Counter[str] = Counter()
    for fit in LIST:
        sizes = fit.frame()[SITE].value_counts()
        print(f"{fit.table}: {fit.family}, {len(sizes)} sites of {sizes.min()} to {sizes.max()} rows")
        for how in ("unmasked", "masked"):
            answer = run(fit, masked=how == "masked")
            counts[how] += answer == RAN
            print(f"    {how:9} {answer}", flush=True)
    print(f"of {len(LIST)}: " + ", ".join(f"{counts[how]} ran {how}" for how in ("unmasked", "masked")))


if __name__ == "__main__":
    main()
