"""Prove rendered kernels right: load each file as a stranger would and compare it with float64 at telling sizes.

The stages, from the command line inwards:

    cli        the call and its exit status
    plan       the jobs that a call comes to: a kernel, or a contract's function, at a level; a part of them by shard
    reach      what a level leaves out by its nature: for another level, version of Triton or `device`
    coverage   which combinations are chosen where not all are; `costs` what jobs take, by which shards are even
    kept       results of earlier runs, by the digest of all that they depend on, the harness (`depends`) included
    static     the text of a folder: parses, lints clean, is formatted, matches its digest, has the manifest's `rows`
    proof      the bounds level: `generator.bounds` asked about one kernel
    run        the other jobs over worker processes, each level in processes of its own
    report     what was found: on the terminal and as JUnit XML; `page` as HTML, `results` keyed by what was proved

The levels interpret and gpu:

    work       one job in a worker: every case, every refusal, what the `tuner` would try
    cases      the sizes, each with its reason; `refusals` what a launcher must turn down, by
               `spoiling` a right call
    execute    one case on the interpreter or a GPU, and all that is checked after it, the `order` of tiles among it
    setup      a case's operands, in buffers with poisoned margins (`operands`)
    reference  the float64 result from the meaning of the spec, with a bound on the rounding errors of any kernel,
               those of its accumulator (`product`) first
    compare    a result against the reference
    guard      the interpreter, mended, with every address checked

The level compile:

    compile    one job in a worker: every launch of a kernel for one target
    launches   each row of the table in each class of what Triton specialises on
    specialise what the launcher and Triton's launch path make of a launch, with no GPU at hand
    machine_code  what a specialisation compiles to, and what it needs
    expect     what the machine code must hold and must not

Nothing here reads a template or the rendered text to learn what is right. What `cli` imports does without torch and
triton, so that a worker can set its environment before it imports them.
"""
