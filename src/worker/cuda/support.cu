// mlarun's own device code: inputs, float64 formulas and the float64 reference, checks, cache eviction, and the small
// kernels that a measurement needs. Self-contained: it includes no header, so that any CUDA compiles it.
//
// What must equal the CPU bit for bit (inputs) is written with intrinsics that cannot be contracted. Sums in float64 may
// differ from the CPU's in their order, and only in it.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// Element types by number; keep in step with support.rs.
enum { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2, FLOAT64 = 3, ONE = 4 };

// ---- Elements ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ float bfloat16_to_float(u16 bits) {
    return __uint_as_float((u32)bits << 16);
}

__device__ __forceinline__ float float16_to_float(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ __forceinline__ u16 float_to_float16(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// Ties to even; NaN stays NaN.
__device__ __forceinline__ u16 float_to_bfloat16(float value) {
    u32 bits = __float_as_uint(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return (u16)((bits >> 16) | 0x40u);
    }
    return (u16)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// Rounded to float32 towards the neighbour with an odd last bit when not exact: a second rounding to a format with at
// least two bits fewer then gives what a single rounding would (Boldo and Melquiond, 2008).
__device__ __forceinline__ float to_odd(double value) {
    float nearest = __double2float_rn(value);
    if (value != value || (double)nearest == value) {
        return nearest;
    }
    u32 bits = __float_as_uint(nearest);
    u32 towards_zero = fabs((double)nearest) > fabs(value) ? bits - 1 : bits;
    return __uint_as_float(towards_zero | 1u);
}

__device__ __forceinline__ double load(const void *from, int dtype, i64 index) {
    switch (dtype) {
    case FLOAT32: return (double)((const float *)from)[index];
    case BFLOAT16: return (double)bfloat16_to_float(((const u16 *)from)[index]);
    case FLOAT16: return (double)float16_to_float(((const u16 *)from)[index]);
    case FLOAT64: return ((const double *)from)[index];
    default: return 1.0;
    }
}

__device__ __forceinline__ void store(void *to, int dtype, i64 index, double value) {
    switch (dtype) {
    case FLOAT32: ((float *)to)[index] = __double2float_rn(value); break;
    case BFLOAT16: ((u16 *)to)[index] = float_to_bfloat16(to_odd(value)); break;
    case FLOAT16: ((u16 *)to)[index] = float_to_float16(to_odd(value)); break;
    default: ((double *)to)[index] = value; break;
    }
}

// ---- Inputs ------------------------------------------------------------------------------------------------------

__device__ __forceinline__ u64 finalise(u64 z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// Element i is the hash of i in the stream of a seed, as a centred sum times `scale`, or as a centred odd integer times
// `scale` plus `middle`.
extern "C" __global__ void mlarun_fill(void *to, int dtype, i64 count, u64 stream, int uniform, float scale, float middle) {
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x; index < count; index += step) {
        u64 hash = finalise(stream + ((u64)index + 1) * 0x9E3779B97F4A7C15ull);
        float value;
        if (uniform) {
            int odd = 2 * (int)(hash >> 40) + 1 - (1 << 24);
            value = __fadd_rn(__fmul_rn((float)odd, scale), middle);
        } else {
            int sum = (int)(hash & 0xFFFF) + (int)(hash >> 16 & 0xFFFF) + (int)(hash >> 32 & 0xFFFF) + (int)(hash >> 48);
            value = __fmul_rn((float)(2 * sum - 4 * 0xFFFF), scale);
        }
        switch (dtype) {
        case FLOAT32: ((float *)to)[index] = value; break;
        case BFLOAT16: ((u16 *)to)[index] = float_to_bfloat16(value); break;
        default: ((u16 *)to)[index] = float_to_float16(value); break;
        }
    }
}

// ---- Checks ------------------------------------------------------------------------------------------------------

// Lowers `first` to the smallest index of an element that is no finite number.
extern "C" __global__ void mlarun_first_non_finite(const void *from, int dtype, i64 count, u64 *first) {
    i64 step = (i64)gridDim.x * blockDim.x;
    u64 found = ~0ull;
    for (i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x; index < count; index += step) {
        bool finite;
        switch (dtype) {
        case FLOAT32: finite = (((const u32 *)from)[index] & 0x7F800000u) != 0x7F800000u; break;
        case BFLOAT16: finite = (((const u16 *)from)[index] & 0x7F80u) != 0x7F80u; break;
        default: finite = (((const u16 *)from)[index] & 0x7C00u) != 0x7C00u; break;
        }
        if (!finite) {
            found = (u64)index;
            break;
        }
    }
    if (found != ~0ull) {
        atomicMin(first, found);
    }
}

// ---- Tensor formulas ---------------------------------------------------------------------------------------------

#define MAX_LETTERS 12

// A group of letters walked together, the last one fastest; strides in the left operand, the right one, the result.
struct Group {
    i64 letters;
    i64 extent[MAX_LETTERS];
    i64 stride[MAX_LETTERS][3];
};

struct Contraction {
    const void *left;
    const void *right;
    void *result;
    i64 left_start;
    i64 right_start;
    i64 batches;
    i64 rows;
    i64 columns;
    i64 depth;
    int left_dtype;
    int right_dtype;
    int result_dtype;
    int unused;
    Group batch;
    Group row;
    Group column;
    Group summed;
};

struct Place {
    i64 left;
    i64 right;
    i64 result;
};

__device__ __forceinline__ Place place(const Group &group, i64 member) {
    Place at = {0, 0, 0};
    for (i64 letter = group.letters - 1; letter >= 0; letter--) {
        i64 index = letter == 0 ? member : member % group.extent[letter];
        member = letter == 0 ? 0 : member / group.extent[letter];
        at.left += index * group.stride[letter][0];
        at.right += index * group.stride[letter][1];
        at.result += index * group.stride[letter][2];
    }
    return at;
}

#define TILE_ROWS 128
#define TILE_COLUMNS 64
#define TILE_DEPTH 16
#define THREADS 256

// Every element of the result: one tile of rows and columns a block, each thread eight rows and four columns.
extern "C" __global__ void __launch_bounds__(THREADS) mlarun_contract(const Contraction c) {
    __shared__ double left[TILE_DEPTH][TILE_ROWS + 1];
    __shared__ double right[TILE_DEPTH][TILE_COLUMNS + 1];
    __shared__ i64 row_left[TILE_ROWS], row_result[TILE_ROWS];
    __shared__ i64 column_right[TILE_COLUMNS], column_result[TILE_COLUMNS];
    __shared__ i64 depth_left[TILE_DEPTH], depth_right[TILE_DEPTH];

    int thread = threadIdx.x;
    int thread_row = thread / 16, thread_column = thread % 16;
    i64 row_tiles = (c.rows + TILE_ROWS - 1) / TILE_ROWS;
    i64 column_tiles = (c.columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
    i64 tiles = c.batches * row_tiles * column_tiles;
    bool left_along_depth = c.summed.letters > 0 && c.summed.stride[c.summed.letters - 1][0] == 1;
    bool right_along_depth = c.summed.letters > 0 && c.summed.stride[c.summed.letters - 1][1] == 1;

    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        i64 first_column = tile % column_tiles * TILE_COLUMNS;
        i64 first_row = tile / column_tiles % row_tiles * TILE_ROWS;
        Place batch = place(c.batch, tile / column_tiles / row_tiles);
        __syncthreads();
        if (thread < TILE_ROWS && first_row + thread < c.rows) {
            Place at = place(c.row, first_row + thread);
            row_left[thread] = at.left + batch.left + c.left_start;
            row_result[thread] = at.result + batch.result;
        }
        if (thread < TILE_COLUMNS && first_column + thread < c.columns) {
            Place at = place(c.column, first_column + thread);
            column_right[thread] = at.right + batch.right + c.right_start;
            column_result[thread] = at.result;
        }
        double sum[8][4];
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sum[i][j] = 0.0;
            }
        }
        for (i64 first_depth = 0; first_depth < c.depth; first_depth += TILE_DEPTH) {
            if (thread < TILE_DEPTH && first_depth + thread < c.depth) {
                Place at = place(c.summed, first_depth + thread);
                depth_left[thread] = at.left;
                depth_right[thread] = at.right;
            }
            __syncthreads();
#pragma unroll
            for (int turn = 0; turn < TILE_ROWS * TILE_DEPTH / THREADS; turn++) {
                int item = turn * THREADS + thread;
                int depth = left_along_depth ? item % TILE_DEPTH : item / TILE_ROWS;
                int row = left_along_depth ? item / TILE_DEPTH : item % TILE_ROWS;
                bool inside = first_depth + depth < c.depth && first_row + row < c.rows;
                left[depth][row] = inside ? load(c.left, c.left_dtype, row_left[row] + depth_left[depth]) : 0.0;
            }
#pragma unroll
            for (int turn = 0; turn < TILE_COLUMNS * TILE_DEPTH / THREADS; turn++) {
                int item = turn * THREADS + thread;
                int depth = right_along_depth ? item % TILE_DEPTH : item / TILE_COLUMNS;
                int column = right_along_depth ? item / TILE_DEPTH : item % TILE_COLUMNS;
                bool inside = first_depth + depth < c.depth && first_column + column < c.columns;
                right[depth][column] =
                    inside ? load(c.right, c.right_dtype, column_right[column] + depth_right[depth]) : 0.0;
            }
            __syncthreads();
#pragma unroll
            for (int depth = 0; depth < TILE_DEPTH; depth++) {
                double a[8], b[4];
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    a[i] = left[depth][thread_row + 16 * i];
                }
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    b[j] = right[depth][thread_column + 16 * j];
                }
#pragma unroll
                for (int i = 0; i < 8; i++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        sum[i][j] = fma(a[i], b[j], sum[i][j]);
                    }
                }
            }
            __syncthreads();
        }
        if (c.depth <= 0) {
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int row = thread_row + 16 * i;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int column = thread_column + 16 * j;
                if (first_row + row < c.rows && first_column + column < c.columns) {
                    store(c.result, c.result_dtype, row_result[row] + column_result[column], sum[i][j]);
                }
            }
        }
    }
}

__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
    }
    return value;
}

// The member to which the element `index` of the result belongs, as its places in the operands.
__device__ __forceinline__ Place member_at(const Group &group, i64 index) {
    Place at = {0, 0, 0};
    for (i64 letter = 0; letter < group.letters; letter++) {
        i64 value = index / group.stride[letter][2] % group.extent[letter];
        at.left += value * group.stride[letter][0];
        at.right += value * group.stride[letter][1];
    }
    return at;
}

// The elements of some vectors of `width` elements along the result's last dimension: a warp an element.
extern "C" __global__ void mlarun_contract_vectors(const Contraction c, const u64 *vectors, i64 count, i64 width, double *to) {
    i64 warps = (i64)gridDim.x * blockDim.x / 32;
    int lane = threadIdx.x % 32;
    for (i64 item = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32; item < count * width; item += warps) {
        i64 index = (i64)vectors[item / width] * width + item % width;
        Place batch = member_at(c.batch, index), row = member_at(c.row, index), column = member_at(c.column, index);
        i64 left = c.left_start + batch.left + row.left + column.left;
        i64 right = c.right_start + batch.right + row.right + column.right;
        double sum = 0.0;
        for (i64 depth = lane; depth < c.depth; depth += 32) {
            Place at = place(c.summed, depth);
            sum = fma(load(c.left, c.left_dtype, left + at.left), load(c.right, c.right_dtype, right + at.right), sum);
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            to[item] = sum;
        }
    }
}

// ---- Attention, from its definition --------------------------------------------------------------------------------

struct Tensor {
    const void *from;
    i64 dtype;
};

// `qc`, `key` and `value` come from nowhere unless they are to be taken as a kernel reads them; the latter two are those of
// the last n tokens.
struct Attention {
    Tensor q, qpe, z, kpe, w_uk, w_uv;
    Tensor qc, key, value;
    i64 h, s, t, d, k, p, n;
    double scale;
    i64 causal;
};

__device__ double block_reduce(double value, bool largest, double *shared) {
    __syncthreads();
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            double other = shared[threadIdx.x + half];
            shared[threadIdx.x] = largest ? fmax(shared[threadIdx.x], other) : shared[threadIdx.x] + other;
        }
        __syncthreads();
    }
    return shared[0];
}

__device__ __forceinline__ double at(const Tensor &tensor, i64 index) {
    return load(tensor.from, (int)tensor.dtype, index);
}

// One compared row of the output a block. softmax(scale · (Q·Kᵀ + QPE·KPEᵀ)) · V with K = Z·W_UK and V = Z·W_UV, summed
// in another order: Q·Kᵀ = (Q·W_UKᵀ)·Zᵀ and A·V = (A·Z)·W_UV, which in float64 is the same to its last bits.
// `work` holds t + 2k numbers for each row.
extern "C" __global__ void __launch_bounds__(THREADS)
mlarun_attention(const Attention a, const u64 *rows, double *to, double *work) {
    __shared__ double shared[THREADS];
    i64 row = (i64)rows[blockIdx.x];
    double *scores = work + blockIdx.x * (a.t + 2 * a.k);
    double *query = scores + a.t, *context = query + a.k;
    double *out = to + blockIdx.x * a.d;
    i64 i = row % a.s, head = row / a.s % a.h, batch = row / a.s / a.h;
    i64 visible = a.causal ? a.t + i + 1 - a.s : a.t;
    visible = visible < 0 ? 0 : visible > a.t ? a.t : visible;
    i64 old = a.t - a.n;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    for (i64 c = warp; c < a.k; c += THREADS / 32) {
        double sum = 0.0;
        for (i64 e = lane; e < a.d; e += 32) {
            sum = fma(at(a.q, row * a.d + e), at(a.w_uk, (head * a.k + c) * a.d + e), sum);
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            query[c] = a.qc.from ? at(a.qc, row * a.k + c) : sum;
        }
    }
    __syncthreads();
    double largest = -__longlong_as_double(0x7FF0000000000000ll);
    for (i64 j = warp; j < visible; j += THREADS / 32) {
        double sum = 0.0;
        if (j < old) {
            for (i64 c = lane; c < a.k; c += 32) {
                sum = fma(query[c], at(a.z, (batch * a.t + j) * a.k + c), sum);
            }
        } else {
            i64 key = ((batch * a.n + j - old) * a.h + head) * a.d;
            for (i64 e = lane; e < a.d; e += 32) {
                sum = fma(at(a.q, row * a.d + e), at(a.key, key + e), sum);
            }
        }
        for (i64 e = lane; e < a.p; e += 32) {
            sum = fma(at(a.qpe, row * a.p + e), at(a.kpe, (batch * a.t + j) * a.p + e), sum);
        }
        double score = warp_sum(sum) * a.scale;
        largest = fmax(largest, score);
        if (lane == 0) {
            scores[j] = score;
        }
    }
    largest = block_reduce(largest, true, shared);
    double total = 0.0;
    for (i64 j = threadIdx.x; j < visible; j += THREADS) {
        double weight = exp(scores[j] - largest);
        scores[j] = weight;
        total += weight;
    }
    total = block_reduce(total, false, shared);
    for (i64 c = threadIdx.x; c < a.k; c += THREADS) {
        double sum = 0.0;
        for (i64 j = 0; j < visible && j < old; j++) {
            sum = fma(scores[j], at(a.z, (batch * a.t + j) * a.k + c), sum);
        }
        context[c] = sum;
    }
    __syncthreads();
    for (i64 e = threadIdx.x; e < a.d; e += THREADS) {
        double sum = 0.0;
        for (i64 c = 0; c < a.k; c++) {
            sum = fma(context[c], at(a.w_uv, (head * a.k + c) * a.d + e), sum);
        }
        for (i64 j = old; j < visible; j++) {
            sum = fma(scores[j], at(a.value, ((batch * a.n + j - old) * a.h + head) * a.d + e), sum);
        }
        out[e] = visible > 0 ? sum / total : 0.0;
    }
}

// ---- Measuring -----------------------------------------------------------------------------------------------------

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// Displaces what the caches hold.
extern "C" __global__ void mlarun_flush(uint4 *words, i64 count, u32 value) {
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x; index < count; index += step) {
        words[index] = make_uint4(value, value, value, value);
    }
}

// Holds its stream until the host has raised `ticket` to `awaited`, or until `limit` nanoseconds have passed.
extern "C" __global__ void mlarun_hold(const volatile u32 *ticket, u32 awaited, volatile u32 *expired, u64 limit) {
    u64 start = nanoseconds();
    while ((int)(*ticket - awaited) < 0) {
        if (nanoseconds() - start > limit) {
            *expired = 1;
            __threadfence_system();
            return;
        }
    }
}

// Time and cycle of a multiprocessor in the turn-th sample.
struct Mark {
    u64 turn, time;
    i64 cycle;
};

// Multiprocessors that marks have room for.
#define MARKS 1024

// Marks every multiprocessor that a block of it runs on.
extern "C" __global__ void mlarun_mark(Mark *marks, u64 turn) {
    u32 multiprocessor;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    if (multiprocessor < MARKS) {
        marks[multiprocessor] = {turn, nanoseconds(), clock64()};
    }
}

// Clock in MHz between two marks of the same turn, over all multiprocessors that have both; 0 where none has.
extern "C" __global__ void mlarun_clock(const Mark *before, const Mark *after, u64 turn, double *mhz) {
    __shared__ double cycles[THREADS], time[THREADS];
    double my_cycles = 0.0, my_time = 0.0;
    for (int index = threadIdx.x; index < MARKS; index += THREADS) {
        Mark first = before[index], last = after[index];
        if (first.turn == turn && last.turn == turn && last.time > first.time) {
            my_cycles += (double)(last.cycle - first.cycle);
            my_time += (double)(last.time - first.time);
        }
    }
    cycles[threadIdx.x] = my_cycles;
    time[threadIdx.x] = my_time;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            cycles[threadIdx.x] += cycles[threadIdx.x + half];
            time[threadIdx.x] += time[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        *mhz = time[0] > 0.0 ? cycles[0] * 1000.0 / time[0] : 0.0;
    }
}

extern "C" __global__ void mlarun_empty() {}
