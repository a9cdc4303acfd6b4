"""Prove rendered kernels right: load each file as a stranger would and compare it with float64 at telling sizes.

The stages, from the command line inwards:

    cli        the call and its exit status
    run        jobs (level, kernel) over worker processes, each level in processes of its own
    static     the text of a folder: parses, lints clean, is formatted, matches its digest
    work       one kernel or one contract in a worker: every case, every refusal
    cases      the sizes, each with its reason; `refusals` what a launcher must turn down
    setup      a case's operands, in buffers with poisoned margins (`operands`)
    reference  the float64 result from the meaning of the spec, with a bound on the rounding errors of any kernel
    compare    a result against the reference
    guard      the interpreter, mended, with every address checked

Nothing here reads a template or the rendered text to learn what is right. `cli`, `run`, `plan`, `report`, `static` and
`jobs` do without torch and triton, so that a worker can set its environment before it imports them.
"""
