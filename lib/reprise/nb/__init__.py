"""The notebook side: parameters, runs, records, claims and the scoreboard.

Importing this package imports nothing else; each module loads pandas, matplotlib or torch inside the functions that
need them, so that judging a claim costs no plotting library.
"""
