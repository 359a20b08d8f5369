"""The numerical results of the paper as data, and what runs and keeps them."""
