"""One module a result; each ends in `RESULT = ...`."""

# In the paper's order; those that go beyond it come last.
ORDER = (
    "figure1_left",
    "figure1_right",
    "figure2_phase",
    "figure3_qq",
    "figure4",
    "heterogeneity",
    "synchronisation",
    "connection",
    "ablation_tau",
    "ablation_gamma",
    "attack_shift",
    "attack_mnist",
    "error_budget",
    "phase_map",
    "unequal_hessians",
)
