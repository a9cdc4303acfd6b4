"""Prove rendered kernels right: load each file as a stranger would and compare it with float64 at telling sizes.

The stages, from the command line inwards:

    cli        the call and its exit status
    plan       the jobs that a call comes to: a kernel, or a contract's function, at a level
    static     the text of a folder: parses, lints clean, is formatted, matches its digest
    run        the other jobs over worker processes, each level in processes of its own
    work       one job in a worker: every case, every refusal
    cases      the sizes, each with its reason; `refusals` what a launcher must turn down
    execute    one case on the interpreter or a GPU, and all that is checked after it
    setup      a case's operands, in buffers with poisoned margins (`operands`)
    reference  the float64 result from the meaning of the spec, with a bound on the rounding errors of any kernel,
               those of its accumulator (`product`) first
    compare    a result against the reference
    guard      the interpreter, mended, with every address checked
    report     what was found: on the terminal, as JUnit XML, as results keyed by what was proved

Nothing here reads a template or the rendered text to learn what is right. `cli`, `run`, `plan`, `report`, `static` and
`jobs` do without torch and triton, so that a worker can set its environment before it imports them.
"""
