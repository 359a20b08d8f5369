"""The coverage laboratory: how often confidence intervals cover, over many simulated runs of a federation."""
