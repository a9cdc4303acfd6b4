"""Prove rendered kernels right: load each file by its path, as a user would, and compare it with float64.

The stages, from the command line inwards:

    cli              the call and its exit status
    job_selection    the jobs of a call: a kernel, or a contract's function, at a level; or one shard of them
    level_scope      what a level cannot prove, and which other level, Triton version or device (`gpu`) does
    coverage         which combinations run when not all do; `job_costs` estimates jobs, so that shards are even
    result_cache     results of earlier runs, keyed by all they depend on, the harness (`dependencies`) included
    static_checks    the text of a folder: parses, lints clean, is formatted, matches its digest and its manifest
    bounds_job       the bounds level: `generator.bounds` asked about one kernel
    worker_pool      runs the other jobs over worker processes, each level in processes of its own
    run_report       the results on the terminal and as JUnit XML; `page` as HTML, `proof_records` by what was proved

The levels interpret and gpu:

    worker           one job in a worker: every case, every refusal, what the `autotuner` would try
    cases            the sizes, each with its reason; `refusals` what a launcher must reject (`invalid_calls`)
    execute          one case on the interpreter or a GPU, and all checks after it, `tile_order` among them
    case_setup       a case's operands, in buffers with poisoned margins (`poisoned_operands`)
    reference        the float64 result from the meaning of the spec, with a bound on the rounding errors of any kernel
                     (`error_propagation`, `accumulation_bounds`)
    compare          a result against the reference
    interpreter      Triton's interpreter with corrections, and with every address checked

The level compile:

    compile          one job in a worker: every launch of a kernel for one target
    launches         each configuration in each class of what Triton specialises on
    specialise       what the launcher and Triton's launch path make of a launch, with no GPU at hand
    machine_code     what a specialisation compiles to, and what it needs
    expectations     what the machine code must hold and must not

Nothing here reads a template or the rendered text to learn what is right. What `cli` imports does without torch and
triton, so that a worker can set its environment before it imports them.
"""
