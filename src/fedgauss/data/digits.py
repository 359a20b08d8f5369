"""Handwriting without a download: digits drawn from strokes, no two alike."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

SIDE = 28
_DOTS = 64  # along the strokes of a digit: closer together than a stroke is wide
_AT_A_TIME = 500  # images; their distances to all dots are in memory at once
_NOISE = 0.1  # standard deviation, where ink is 1


def _line(*corners: tuple[float, float]) -> Floats:
    """Dots a hundredth apart along straight lines, in a box of side 1 whose y points down; (n, 2)."""
    ends = np.array(corners, dtype=np.float32)
    parts = []
    for begin, end in pairwise(ends):
        n = max(2, round(100 * float(np.linalg.norm(end - begin))))
        parts.append(begin + np.linspace(0, 1, n, dtype=np.float32)[:, None] * (end - begin))
    return np.concatenate(parts)


def _arc(x: float, y: float, wide: float, high: float, begin: float = 0, end: float = 360) -> Floats:
    """Along an ellipse about (x, y), in degrees clockwise from the right."""
    angles = np.radians(np.arange(begin, end, 2.0))
    corners = np.column_stack([x + wide * np.cos(angles), y + high * np.sin(angles)])
    return _line(*map(tuple, corners))


_STROKES = [
    [_arc(0.5, 0.5, 0.3, 0.45)],
    [_line((0.3, 0.25), (0.52, 0.05), (0.52, 0.95))],
    [_arc(0.5, 0.3, 0.28, 0.25, 190, 390), _line((0.74, 0.42), (0.2, 0.95), (0.82, 0.95))],
    [_arc(0.47, 0.28, 0.27, 0.23, 200, 450), _arc(0.47, 0.72, 0.3, 0.23, -90, 160)],
    [_line((0.65, 0.95), (0.65, 0.05), (0.18, 0.65), (0.88, 0.65))],
    [_line((0.76, 0.06), (0.3, 0.06), (0.27, 0.48)), _arc(0.47, 0.68, 0.3, 0.27, -135, 145)],
    [_arc(0.78, 0.68, 0.54, 0.62, 180, 262), _arc(0.5, 0.7, 0.26, 0.25)],
    [_line((0.2, 0.06), (0.8, 0.06), (0.4, 0.95))],
    [_arc(0.5, 0.28, 0.22, 0.22), _arc(0.5, 0.73, 0.28, 0.23)],
    [_arc(0.5, 0.3, 0.26, 0.25), _line((0.76, 0.3), (0.68, 0.95))],
]


def _thinned(strokes: list[Floats]) -> Floats:
    """As many dots for every digit, centred; (dots, 2)."""
    dots = np.concatenate(strokes)
    return dots[np.linspace(0, len(dots) - 1, _DOTS).round().astype(int)] - 0.5


_SHAPES = np.stack([_thinned(strokes) for strokes in _STROKES])  # (10, dots, 2)


def drawn(labels: npt.NDArray[np.int64], seed: int, variety: float = 1.0) -> npt.NDArray[np.uint8]:
    """Draw an image of each label: turned, slanted, stretched, bent, moved and noisy.

    Parameters
    ----------
    labels : (n,) array of int
        The digits, 0 to 9.
    seed : int
        The same seed and labels give the same images.
    variety : float
        How far digits are turned, slanted, bent and moved. A small network reads 0.5 well from 2,000 images, and needs
        many more for 1.

    Returns
    -------
    (n, 28, 28) array of uint8
        0 is paper and 255 is ink.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) or not np.isin(labels, range(10)).all():
        raise ValueError(f"labels must be one row of whole numbers from 0 to 9; got {labels!r}.")
    rng = np.random.default_rng(seed)
    parts = np.array_split(labels, max(1, len(labels) // _AT_A_TIME))
    return np.concatenate([_inked(_bent(part, rng, variety), rng) for part in parts])


def _bent(labels: npt.NDArray[np.int64], rng: np.random.Generator, variety: float) -> Floats:
    """Where the dots of each image lie, in pixels; (n, dots, 2)."""
    n = len(labels)
    dots = _SHAPES[labels]
    waves = rng.normal(scale=0.05 * variety, size=(2, n, 1, 2)).astype(np.float32)
    dots = dots + waves[0] * np.sin(6 * dots[..., ::-1]) + waves[1] * np.cos(6 * dots[..., ::-1])
    turn, slant = rng.normal(scale=0.2 * variety, size=(2, n))
    wide, high = rng.uniform(0.75, 1.15, size=(2, n))
    turned = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]).transpose(2, 0, 1)
    stretched = np.array([[wide, slant], [np.zeros(n), high]]).transpose(2, 0, 1)
    shifts = variety * rng.uniform(-3, 3, size=(n, 1, 2))
    by = (turned @ stretched).transpose(0, 2, 1).astype(np.float32)
    return 18 * dots @ by + (SIDE / 2 + shifts).astype(np.float32)


def _inked(dots: Floats, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Pixels that are dark where a dot is near, with noise."""
    places = np.arange(SIDE, dtype=np.float32) + 0.5
    across = (places - dots[..., :1]) ** 2  # (n, dots, 28)
    down = (places - dots[..., 1:]) ** 2
    distance = np.sqrt((down[..., :, None] + across[..., None, :]).min(axis=1))
    width = rng.uniform(0.7, 1.7, size=(len(dots), 1, 1)).astype(np.float32)
    ink = np.clip(width + 0.5 - distance, 0, 1)
    noisy = ink + _NOISE * rng.standard_normal(ink.shape, dtype=np.float32)
    return (255 * np.clip(noisy, 0, 1)).astype(np.uint8)
