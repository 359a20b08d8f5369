"""One palette for figures and pages, with a light and a dark value for each role."""

# Figures are drawn in the light values. A page turns each into a variable, so every value occurs once.
LIGHT = {
    "paper": "#fdfcfa",
    "ink": "#22262e",
    "muted": "#6b6f76",
    "faint": "#d9d7d1",
    "simulated": "#7d8794",
    "exact": "#1f5c99",
    "finite": "#3f7f5f",
    "limit": "#b4502f",
}
DARK = {
    "paper": "#16191f",
    "ink": "#e6e3dc",
    "muted": "#a0a4ab",
    "faint": "#3a3e46",
    "simulated": "#8f98a5",
    "exact": "#86b6e6",
    "finite": "#84c3a1",
    "limit": "#ea9a78",
}


def palette_css() -> str:
    """The palette as CSS variables, --ink and so on, which follow the reader's preference for light or dark."""
    light, dark = (";".join(f"--{role}:{colour}" for role, colour in theme.items()) for theme in (LIGHT, DARK))
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
