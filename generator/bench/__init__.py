"""Time rendered kernels against cuBLAS and other peers, side by side in the same rounds.

The stages, each of which can be called alone:

    suite            suite or shapes file -> Suite         the comparisons to make, as data
    comparison_plan  Suite + specs -> Comparison ...       the rendered files, shapes and peers of each comparison
    measure          Comparison + Device -> Record         checked against float64, then timed in the same rounds
    measurements     Record ... <-> JSON                   saved after each comparison, so that a run can be continued
    markdown_tables  results -> Markdown                   without a GPU
    summary          Record ... -> Ratios                  of each case: the mean, the smallest, how many under a bound
    plot             results -> a picture                  without a GPU, with matplotlib
    results_page     results -> an HTML page               without a GPU, by `generator.emit.html_page`

Operands, references and what errors are allowed are in `generator.problem`; here are the sets of a measurement
(`random_operands`), the rows and columns that are checked (`check`) and what torch computes (`peers`).

The modules that read a results file (`stats`, `suite`, `comparison_plan`, `measurements`, `markdown_tables`, `summary`,
`plot`, `results_page`) need neither torch nor a GPU.
"""
