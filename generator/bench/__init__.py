"""Time rendered kernels against cuBLAS and other peers, side by side in the same rounds.

The stages, each callable alone:

    suite            suite or shapes file -> Suite         what is to be compared, as data
    comparison_plan  Suite + specs -> Comparison ...       which rendered files, which shapes, which peer
    measure          Comparison + Device -> Record         checked against float64, then timed in the same rounds
    measurements     Record ... <-> JSON                   kept as comparisons are done, so that a stopped run can go on
    markdown_tables  results -> Markdown                   without a GPU
    summary          Record ... -> Ratios                  the mean, the smallest, how many under a bound, a case
    plot             results -> a picture                  without a GPU, with matplotlib

What reads a results file (`stats`, `suite`, `comparison_plan`, `measurements`, `markdown_tables`, `summary`, `plot`)
needs neither torch nor a GPU.
"""
