"""A fit as files: the numbers as JSON, and a figure of the coefficients with their intervals."""

from pathlib import Path

from fedgauss._files import write_whole
from fedgauss.inference.fit_result import Fit
from fedgauss.report.output import png, svg


def write_fit(fit: Fit, folder: Path) -> list[Path]:
    """fit.json, which `Fit.load` reads, coefficients.png and coefficients.svg."""
    figure = fit.plot(standardised=True)
    fit.save(folder / "fit.json")
    files = {"coefficients.png": png(figure), "coefficients.svg": svg(figure)}
    for name, content in files.items():
        write_whole(folder / name, content)
    return [folder / name for name in ("fit.json", *files)]
