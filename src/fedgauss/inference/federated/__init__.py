"""`fit` between places that keep their rows: what a site answers, and who asks."""
