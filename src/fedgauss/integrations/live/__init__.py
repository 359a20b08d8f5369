"""`fedgauss watch`: follow a run from its log, or be told of its rounds, and show how it goes on a live page.

    a log, or POSTed rounds -> LoggedRound (checked) -> LiveRun (monitor, average, participation) -> state -> page
    a log of clients        -> ClientLine (checked)  -> ClientRun (client monitor, surprises)     -> state -> page

Whatever comes in is foreign: it is checked completely before anything changes, and refused with a reason.
"""
