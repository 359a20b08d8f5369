"""The picture of the first chapter: accuracy by round, and below it clients by rounds with the alarm."""

from __future__ import annotations

from typing import Any

from fedgauss._figures import LIGHT, styled, titled_figure
from fedgauss.demo import told
from fedgauss.demo.digits_task import CLIENTS
from fedgauss.demo.healing import BAD, ROUNDS, TURNED, Healing
from fedgauss.report.output import Drawing, few_ticks

_FULL = 5.0  # -log10 of the p-value that is drawn in full colour


@styled
def healed(healing: Healing) -> Drawing:
    """Two panels over the same rounds."""
    figure = titled_figure(told.headline(healing), 4.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2.4))
    _draw_accuracy(above, healing)
    _draw_clients(below, healing)
    below.set(xlabel="round", xlim=(0, ROUNDS + 1))
    figure.align_ylabels()
    return Drawing(
        "healed",
        figure,
        f"Above, accuracy on 1,000 images that no client has. {told.ending(healing)} Below, how surprising each "
        "client’s move is beside those of the others and its own past: the darker, the less likely if all are honest. "
        "Clients are judged from round 12 on, once they have a past.",
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


def _draw_clients(axes: Any, healing: Healing) -> None:
    """A square for each client and round, in one colour that fades: so it follows a page into the dark."""
    rows = {name: len(CLIENTS) - 1 - k for k, name in enumerate(CLIENTS)}
    rounds = [(v.round, rows[str(name)], s) for v in healing.protected.verdicts for name, s in v.surprises.items()]
    number, row, surprise = zip(*rounds, strict=True)
    shade = [min(1.0, max(0.03, value / _FULL)) for value in surprise]
    axes.scatter(number, row, marker="s", s=12, color=LIGHT["limit"], alpha=shade, lw=0)
    for alarm in healing.protected.alarms:
        for name in alarm.suspects:
            axes.plot(
                [alarm.round + 0.9, ROUNDS], [rows[str(name)]] * 2, color=LIGHT["faint"], lw=4.5, solid_capstyle="butt"
            )
            axes.text(alarm.round + 2, rows[str(name)], "left out", va="center", fontsize=8.5, color=LIGHT["ink"])
    axes.axvline(TURNED, color=LIGHT["ink"], lw=0.8, ls=(0, (1, 2)))
    axes.set_yticks(list(rows.values()), list(rows), fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.set(ylim=(-0.6, len(rows) - 0.4), ylabel="client")
    axes.spines["left"].set_visible(False)
