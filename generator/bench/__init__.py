"""Time rendered kernels against cuBLAS and other peers, side by side in the same rounds.

The stages, each of which can be called alone:

    suite            suite or shapes file -> Suite         the comparisons to make, as data
    comparison_plan  Suite + specs -> Comparison ...       the rendered files, shapes and peers of each comparison
    measure          Comparison + Device -> Record         checked against float64, then timed in the same rounds
    measurements     Record ... <-> JSON                   saved after each comparison, so that a run can be continued
    results_report   results -> Report, Markdown           tables and plots, without a GPU
    summary          Record ... -> Ratios                  of each case: the mean, the smallest, how many under a bound
    plot             plots of a Report -> a picture        without a GPU, with matplotlib
    workers          processes that compile before the timing, and those of `tune` that time, one for each GPU

Operands, references and what errors are allowed are in `generator.problem`; here are the sets of a measurement
(`random_operands`), the rows and columns that are checked (`check`) and what torch computes (`peers`).

The modules that read a results file (`stats`, `suite`, `comparison_plan`, `measurements`, `results_report`, `summary`,
`plot`) need neither torch nor a GPU.
"""
