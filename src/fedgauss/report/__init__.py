"""Presentation only: text, tables, figures, pages and the files they go to. Nothing is computed here."""
