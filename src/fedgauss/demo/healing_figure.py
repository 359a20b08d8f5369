"""The picture of the first chapter: accuracy by round, and below it clients by rounds with the alarm."""

from __future__ import annotations

from typing import Any

from fedgauss._figures import LIGHT, styled, titled_figure
from fedgauss.demo import told
from fedgauss.demo.healing import BAD, ROUNDS, TURNED, Healing
from fedgauss.detect.clients.figures import draw_heat
from fedgauss.report.output import Drawing, few_ticks


@styled
def healed(healing: Healing) -> Drawing:
    """Two panels over the same rounds."""
    figure = titled_figure(told.headline(healing), 4.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2.4))
    _draw_accuracy(above, healing)
    draw_heat(below, healing.monitor)
    below.set(xlabel="round", xlim=(0, ROUNDS + 0.5))
    figure.align_ylabels()
    return Drawing(
        "healed",
        figure,
        f"Above, accuracy on 1,000 images that no client has. {told.ending(healing)} Below, how surprising each "
        "client’s move is beside those of the others and its own past: the stronger the colour, the less likely if all "
        "are honest. Clients are judged from round 12 on, once they have a past.",
        f"Two panels over {ROUNDS} rounds. {told.headline(healing)}. {told.ending(healing)}",
    )


def _draw_accuracy(axes: Any, healing: Healing) -> None:
    """Protected, unprotected, and without those who turn bad."""
    lines = (
        ("not protected", healing.unprotected, "limit", "-"),
        ("without the three", healing.without, "muted", (0, (4, 2))),
        ("protected", healing.protected, "finite", "-"),
    )
    for label, training, role, style in lines:
        axes.plot(training.accuracy, color=LIGHT[role], ls=style, lw=1.8, label=label)
    axes.axvline(TURNED, color=LIGHT["ink"], lw=0.8, ls=(0, (1, 2)))
    axes.annotate(
        f"{told.in_words(BAD)}\nturn bad",
        (TURNED, 0.06),
        xytext=(-6, 0),
        textcoords="offset points",
        ha="right",
        fontsize=10,
    )
    for alarm in healing.protected.alarms:
        axes.plot([alarm.round], [healing.protected.accuracy[alarm.round]], "o", ms=7, color=LIGHT["finite"], zorder=3)
    axes.set(ylabel="accuracy", ylim=(0, 1.02))
    few_ticks(axes.yaxis, 5)
    axes.legend(loc="lower left", bbox_to_anchor=(0.53, -0.04), handlelength=2.2, labelspacing=0.3)  # below both curves
