"""Find the fastest kernel and configuration for each size by measuring, and keep the winners as reviewed data.

The stages, each callable alone:

    trial_selection  specs + shapes + device -> Trial ...  the legal candidates, those that the model favours first
    trial_worker     Trial + Device -> Outcome             measured in three passes, in any process
    journal          Outcome ... <-> JSON lines            appended as they come, so that a stopped run can go on
    rate_fit         Outcome ... -> rates                  of the fitted cost model
    winners          Outcome ... + data file -> data file  merged, sorted, one winner a line (`winner_validation`)

`tuning_run` drives them, `executors` makes the worker processes, and `generator.bench` does all timing and checking.
"""
