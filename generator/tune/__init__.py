"""Measure which kernel and configuration is the fastest for each size, and write the winners to a file for review.

The stages, each of which can be called alone:

    trial_selection  specs + shapes + device -> Trial ...  the legal candidates, in the order of their predicted times
    trial_worker     Trial + Device -> Outcome             measured in three passes, in any process
    journal          Outcome ... <-> JSON lines            appended at once, so that a stopped run can continue
    samples          Outcome ... -> Sample ...             one for each configuration and size
    rate_fit         Sample ... -> rates                   of the fitted cost model
    winner_choice    Outcome ... + data file -> data file  merged
    winners          data file                             sorted, one winner a line
    tuning_report    journal or data file -> Report        what it comes to, as Markdown and as a page

`tuning_run` runs them; `generator.bench` starts the processes, and does all timing and checking.
"""
