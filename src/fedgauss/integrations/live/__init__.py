"""`fedgauss watch`: follow a run from its log, or be told of its rounds, and show how it goes on a live page.

    a log, or POSTed rounds -> Line (checked) -> Run (order, rows, health, saving) -> state -> page, metrics, notices
                                                   -> Feed: a monitor of parameters or of clients, or a warm-up

Whatever comes in is foreign: it is checked completely before anything changes, and refused with a reason.
"""
