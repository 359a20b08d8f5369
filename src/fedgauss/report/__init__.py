"""Results for people: figures, tables, pages and the demonstration."""
