"""The paper's results beside ours: tables, figures, files and one page."""
