"""Reasons that several results share; formulas stand between dollar signs."""

UNSTATED_START = (
    r"The paper never says where runs start, and that decides the numbers. In this model the mean of the average is "
    r"known exactly: $E\bar{Y}_n − θ^* = n^{−1} ∑_t ∏_{j≤t} (1 − η_j) (Y_0 − θ^*)$. From zero, about 3.6 away from "
    r"$θ^*$, this bias $D_1$ is still several standard deviations of the average; from the optimum it is nil."
)
ONLY_D4 = (
    "With equal weights and equal Hessians the error terms $D_2$ and $D_3$ vanish, and $D_3$ is where the bound has"
    " its leading $n^{1/2−β} √K$. So from the optimum only $D_4$ is left, the moving gradient noise: clients that "
    "drift towards their own optima see less gradient noise there than $Σ_n$ counts."
)
HABITS = (
    "The published programs are those of Sections 4.1 to 4.3. The setting called “as coded” here follows their "
    "habits and was found by trying: offsets and noise of standard deviations 5 and 1 to 5, clients started at the "
    "optimum plus noise of standard deviation 0.25, mixing after steps 1, $τ$ + 1, 2$τ$ + 1 and so on."
)
NEAR_OPTIMUM = "client offsets of standard deviation 5, start near the optimum"
HIDDEN = "the text’s setting has too little heterogeneity, and from zero the start hides the effect"
