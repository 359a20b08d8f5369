"""`python -m fedgauss`, the command where its script is not on the path."""

from fedgauss.cli import app

if __name__ == "__main__":
    app(prog_name="fedgauss")
