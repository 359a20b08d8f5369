"""What a formula may say, in a closed grammar: it is read into terms, and terms become named columns.

Sites obey formulas of strangers. Nothing in a formula is evaluated or looked up but columns; its length, its depth and
the number of its terms are bounded.
"""
