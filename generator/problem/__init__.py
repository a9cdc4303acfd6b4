"""What a product computes on which data: sizes, operands, references in float64, and the errors that are allowed.

`verify`, `bench` and `tune` all use it; it knows nothing of how kernels are loaded, run or timed.

    product              a product with its sizes, types, layout and epilogue: operations, bytes, leading dimensions
    written_sizes        the sizes of products as a call or a file writes them, ranges among them
    grouping             how an extent is divided into groups, and what each group has of an operand
    drawn_values         random values of operands, plain or stored, and the strides of matrices
    poisoned_operands    operands in larger buffers with poisoned margins, and poison in results
    element_types        element types as torch dtypes, their spacing, and saturation
    stored_values        the numbers that stored operands stand for (int4, fp8 with scales, MX, 2:4), and their product
    chain_values         an epilogue on values of any kind, and the rows and columns that its operands have
    torch_functions      the formula language and an epilogue in torch, without bounds
    error_propagation    the formula language in float64 with a bound on the error of each value
    accumulation_bounds  the error of an accumulator: the worst case, and what is usual for random operands
    reference            the float64 results of a spec with their bounds
    compare              a result against its reference

`product`, `written_sizes` and `grouping` need no torch, so that files of results can be read without it.
"""
