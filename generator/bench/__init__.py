"""Time rendered kernels against the vendor's library, side by side in the same rounds.

The stages, each callable alone:

    suite     suite or shapes file -> Suite                what is to be compared, as data
    plan      Suite + specs -> Comparison ...              which rendered files, which shapes, which peer
    measure   Comparison + Device -> Record                checked against float64, then timed interleaved
    results   Record ... <-> JSON                          kept as comparisons are done, so that a stopped run goes on
    table     results -> Markdown                          without a GPU
    summary   Record ... -> Ratios                         the mean, the smallest, how many under a bound, a case
    plot      results -> PNG                               without a GPU, with matplotlib

What reads a results file (`stats`, `suite`, `plan`, `results`, `table`, `summary`, `plot`) needs neither torch nor
a GPU.
"""
