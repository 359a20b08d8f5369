"""One palette for figures and pages, with a light and a dark value for each role."""

_ROLES = {
    "paper": ("#fdfcfa", "#16191f"),
    "ink": ("#22262e", "#e6e3dc"),
    "muted": ("#6b6f76", "#a0a4ab"),
    "faint": ("#d9d7d1", "#3a3e46"),
    "simulated": ("#7d8794", "#8f98a5"),
    "exact": ("#1f5c99", "#86b6e6"),
    "finite": ("#3f7f5f", "#84c3a1"),
    "limit": ("#b4502f", "#ea9a78"),
}
# Figures are drawn in the light values. A page turns each into a variable, so every value occurs once.
LIGHT = {role: light for role, (light, _) in _ROLES.items()}
DARK = {role: dark for role, (_, dark) in _ROLES.items()}


def palette_css() -> str:
    """The palette as CSS variables, --ink and so on, which follow the reader's preference for light or dark."""
    light, dark = (";".join(f"--{role}:{colour}" for role, colour in theme.items()) for theme in (LIGHT, DARK))
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
