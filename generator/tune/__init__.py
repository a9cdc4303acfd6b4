"""Find the fastest kernel and row of a table for each size by measuring, and keep the winners as reviewed data.

The stages, each callable alone:

    plan       specs + shapes + device -> Trial ...      what is legal and not hopeless, best by the model first
    work       Trial + Device -> Outcome                 measured in three passes, in whatever process it is sent to
    journal    Outcome ... <-> JSON lines                 appended as they come, so that a stopped run goes on
    winners    Outcome ... + data file -> data file       merged, sorted, one winner a line

`run` drives them, `executors` makes the processes that work, and `generator.bench` does all timing and checking.
"""
