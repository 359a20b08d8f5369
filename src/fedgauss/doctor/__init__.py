"""`fedgauss doctor`: whether this installation works here, and what to do where it does not."""
