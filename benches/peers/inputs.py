"""Contents of a pipeline's buffers, as mlarun makes them: inputs from a counter, derived tensors in float64.

Inputs have the same bits as mlarun's. Derived tensors are sums in float64 in another order, rounded once, which gives
the same bits but for a case in about 10^12. `xp` is cupy, or numpy where there is no GPU.
"""

WORD = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
# Elements that are made at a time.
PIECE = 1 << 25


def finalise(z):
    """The finaliser of SplitMix64, of an integer or of an array of uint64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = z ^ (z >> shift)
        z = z * factor & WORD if isinstance(z, int) else z * z.dtype.type(factor)
    return z ^ (z >> 31)


def generated(xp, distribution: dict, first: int, count: int):
    """Elements `first` to `first + count` of an input, float32."""
    index = xp.arange(first + 1, first + count + 1, dtype=xp.uint64)
    word = finalise(index * xp.uint64(GAMMA) + xp.uint64(finalise(distribution["seed"])))
    if distribution["distribution"] == "normal":
        parts = sum(((word >> shift) & 0xFFFF).astype(xp.int64) for shift in (0, 16, 32, 48))
        scale = distribution["std"] / (4.0 * 4294967295.0 / 3.0) ** 0.5
        return (2 * parts - 4 * 0xFFFF).astype(xp.float32) * xp.float32(scale)
    low, high = distribution["low"], distribution["high"]
    odd = 2 * (word >> 40).astype(xp.int64) + 1 - (1 << 24)
    half_width = xp.float32((high - low) / 2.0 / 16777216.0)
    return odd.astype(xp.float32) * half_width + xp.float32(low + (high - low) / 2.0)


def to_odd(xp, values):
    """float64 to float32, where not exact to the neighbour with an odd last bit: a second rounding is then harmless."""
    nearest = values.astype(xp.float32)
    bits = nearest.view(xp.uint32)
    beyond = xp.abs(nearest.astype(xp.float64)) > xp.abs(values)
    odd = xp.where(beyond, bits - 1, bits) | xp.uint32(1)
    return xp.where(nearest.astype(xp.float64) == values, bits, odd).view(xp.float32)


def stored(xp, values, dtype: str):
    """float32 as elements of `dtype` in memory: float32, or uint16 with the bits of a 16-bit float; ties to even."""
    if dtype == "float32":
        return values
    if dtype == "float16":
        return values.astype(xp.float16).view(xp.uint16)
    bits = values.view(xp.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(xp.uint16)


def loaded(xp, elements, dtype: str):
    """Elements as float64."""
    if dtype == "float32":
        return elements.astype(xp.float64)
    if dtype == "float16":
        return elements.view(xp.float16).astype(xp.float64)
    return (elements.astype(xp.uint32) << 16).view(xp.float32).astype(xp.float64)


def derived(xp, formula: dict, buffers: list, made: list, dims: list, dtype: str):
    """A tensor that is a formula of others, one index of its first axis at a time."""
    inputs, result = formula["spec"].split("->")
    letters = inputs.split(",")
    extent = dict(zip(result, dims))
    operands = []
    for axes, operand in zip(letters, formula["operands"]):
        first = [operand["start"].get(axis, 0) for axis in axes]
        part = tuple(slice(at, at + extent[axis] if axis in extent else None) for at, axis in zip(first, axes))
        operands.append((axes, made[operand["buffer"]][part], buffers[operand["buffer"]]["dtype"]))
    out = xp.empty(dims, dtype=xp.float32 if dtype == "float32" else xp.uint16)
    first = result[0]
    for index in range(dims[0]):
        at_index = [(axes, elements.take(index, axis=axes.index(first)) if first in axes else elements, kind)
                    for axes, elements, kind in operands]
        spec = ",".join(axes.replace(first, "") for axes, _, _ in at_index) + "->" + result[1:]
        values = xp.einsum(spec, *(loaded(xp, elements, kind) for _, elements, kind in at_index))
        out[index] = stored(xp, values.astype(xp.float32) if dtype == "float32" else to_odd(xp, values), dtype)
    return out


def make(xp, buffers: list) -> list:
    """An array for each buffer of a pipeline; what a kernel is to write holds NaN."""
    made = []
    for buffer in buffers:
        role, dtype, dims = buffer["role"], buffer["dtype"], buffer["dims"]
        kind = xp.float32 if dtype == "float32" else xp.uint16
        if role["role"] == "input":
            flat = xp.empty(count_of(dims), dtype=kind)
            for first in range(0, flat.size, PIECE):
                count = min(PIECE, flat.size - first)
                flat[first : first + count] = stored(xp, generated(xp, role, first, count), dtype)
            made.append(flat.reshape(dims))
        elif role["role"] == "derived":
            made.append(derived(xp, role["formula"], buffers, made, dims, dtype))
        else:
            nan = xp.float32("nan") if dtype == "float32" else xp.uint16(0x7FFF)
            made.append(xp.full(dims, nan, dtype=kind))
    return made


def count_of(dims: list) -> int:
    count = 1
    for dim in dims:
        count *= dim
    return count
