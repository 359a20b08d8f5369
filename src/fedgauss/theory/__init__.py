"""What the paper proves of local SGD, computed: covariances, exact moments, rates and advice."""
