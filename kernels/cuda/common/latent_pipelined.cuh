/* Attention over the latent cache on tensor cores, pipelined: what the v2 latent stages are made of.
 *
 * The h * s absorbed queries of a request all meet the same tokens, so they are the rows of one matrix. A block takes
 * BLOCK_M of them through the tokens of a split, BLOCK_N at a time. A tile of tokens [BLOCK_N][K + P] is loaded once, by
 * cp.async STAGES - 1 tiles ahead, and serves as keys and (its first K columns) as values.
 *
 * The accumulators, BLOCK_M x K floats, fill the registers of 8 warps, and what limits the kernel then is reading shared
 * memory for the mma; each product is dealt out so that a warp reads little for what it computes:
 *   - scores: SCORE_K x SCORE_M x (8 / SCORE_K / SCORE_M) warps along the dimensions, the queries and the tokens. Every
 *     SCORE_K'th group of 16 dimensions is a warp's own, and the partial sums meet in shared memory.
 *   - softmax: a warp takes whole rows from there, so their maxima need no further exchange. It writes the weights,
 *     rounded to elements, to shared memory.
 *   - values: a warp takes K / 8 columns for all rows: a token is read from shared memory once.
 *
 * Before inclusion: K, P, BLOCK_M (32 or 64), BLOCK_N (a multiple of 16), STAGES, SCORE_K (1, 2 or 4), SCORE_M. */
#ifndef COMMON_LATENT_PIPELINED_CUH
#define COMMON_LATENT_PIPELINED_CUH

#include "mma.cuh"
#include "softmax.cuh"

#define THREADS 256
#define WARPS 8
#define SCORE_N (WARPS / SCORE_K / SCORE_M)

/* Scores of a warp: m x n tiles of mma. */
#define SCORE_TILES_M (BLOCK_M / SCORE_M / 16)
#define SCORE_TILES_N (BLOCK_N / SCORE_N / 8)
#define SCORE_STEPS ((K + P) / 16 / SCORE_K)
/* Values of a warp: pairs of n tiles, 16 columns. */
#define VALUE_TILES_M (BLOCK_M / 16)
#define VALUE_PAIRS (K / WARPS / 16)
/* Softmax: rows of a warp and lanes of a row; each lane has pairs of columns. */
#define SOFTMAX_ROWS (BLOCK_M / WARPS)
#define SOFTMAX_LANES (32 / SOFTMAX_ROWS)
#define SOFTMAX_PAIRS (BLOCK_N / 2 / SOFTMAX_LANES)

static_assert(SCORE_K == 1 || SCORE_K == 2 || SCORE_K == 4, "a warp's chunks repeat every 8");
static_assert(SCORE_K * SCORE_M * SCORE_N == WARPS && BLOCK_M % (16 * SCORE_M) == 0 && BLOCK_N % (8 * SCORE_N) == 0, "");
static_assert((K + P) % (16 * SCORE_K) == 0 && P % 8 == 0 && K % (16 * WARPS) == 0, "");
static_assert(BLOCK_M == 32 || BLOCK_M == 64, "a softmax row belongs to 4 or 8 lanes");
static_assert(BLOCK_N % (2 * SOFTMAX_LANES) == 0, "");

#define ROW_BYTES SWIZZLED_ROW(K + P)
/* Rows of scores and of weights are padded so that neighbouring rows lie in other banks. */
#define SCORE_STRIDE (BLOCK_N + 8)
#define WEIGHT_STRIDE (BLOCK_N + 8)

#define QUERY_BYTES (BLOCK_M * ROW_BYTES)
#define STAGE_BYTES (BLOCK_N * ROW_BYTES)
#define SCORE_BYTES (SCORE_K * BLOCK_M * SCORE_STRIDE * 4)
#define WEIGHT_BYTES (BLOCK_M * WEIGHT_STRIDE * 2)
/* Shared memory of a block: QUERY_BYTES + STAGES * STAGE_BYTES + SCORE_BYTES + WEIGHT_BYTES + BLOCK_M * 4. */

/* Chunks that each thread copies of a matrix of `rows` rows [first K | second P]. */
template <int rows> constexpr int copies_of = (rows * K / CHUNK_ELEMENTS + THREADS - 1) / THREADS + (rows * P / CHUNK_ELEMENTS + THREADS - 1) / THREADS;

/* The i'th of them, to swizzled shared memory; rows from `present` on become 0. */
template <int rows> INLINE void copy_one(int i, unsigned to, const element *first, const element *second, int present)
{
    constexpr int first_chunks = K / CHUNK_ELEMENTS, second_chunks = P / CHUNK_ELEMENTS;
    constexpr int first_copies = (rows * first_chunks + THREADS - 1) / THREADS;
    if (i < first_copies) {
        int index = i * THREADS + threadIdx.x, row = index / first_chunks, chunk = index % first_chunks;
        if (rows * first_chunks % THREADS == 0 || row < rows)
            copy_async(to + swizzled(row, chunk, ROW_BYTES), row < present ? first + (long long)row * K + chunk * CHUNK_ELEMENTS : first,
                       row < present);
    } else {
        int index = (i - first_copies) * THREADS + threadIdx.x, row = index / second_chunks, chunk = index % second_chunks;
        if (rows * second_chunks % THREADS == 0 || row < rows)
            copy_async(to + swizzled(row, first_chunks + chunk, ROW_BYTES),
                       row < present ? second + (long long)row * P + chunk * CHUNK_ELEMENTS : second, row < present);
    }
}

template <int rows> INLINE void copy_rows(unsigned to, const element *first, const element *second, int present)
{
#pragma unroll
    for (int i = 0; i < copies_of<rows>; i++)
        copy_one<rows>(i, to, first, second, present);
}

/* The work of a whole grid of any size: `splits` parts of the first `tokens` of the t tokens, for all queries.
 *
 * qc [b,h,s,K], qpe [b,h,s,P], z [b,t,K], kpe [b,t,P], part [splits,b,h,s,K] (each normalised by itself, 0 where no token
 * is visible), lse [splits,b,h,s] (base 2). */
INLINE void attend_latent(const element *qc, const element *qpe, const element *z, const element *kpe, element *part, float *lse,
                          long long b, long long s, long long t, long long tokens, long long h, float scale, bool causal,
                          int splits)
{
    extern __shared__ __align__(128) char shared[];
    float *scores = reinterpret_cast<float *>(shared + QUERY_BYTES + STAGES * STAGE_BYTES);
    unsigned *weights = reinterpret_cast<unsigned *>(reinterpret_cast<char *>(scores) + SCORE_BYTES);
    float *factors = reinterpret_cast<float *>(reinterpret_cast<char *>(weights) + WEIGHT_BYTES);
    const unsigned query_base = shared_address(shared), stage_base = query_base + QUERY_BYTES;
    const unsigned weight_base = shared_address(weights);

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
    const float log2_scale = scale * LOG2_E;

    /* Scores: this warp's dimensions, queries and tokens. Chunks repeat every 8, so few offsets serve all steps. */
    const int score_k = warp % SCORE_K, score_m = warp / SCORE_K % SCORE_M, score_n = warp / SCORE_K / SCORE_M;
    constexpr int offsets = 4 / SCORE_K;
    unsigned query_offset[offsets], key_offset[offsets];
#pragma unroll
    for (int i = 0; i < offsets; i++) {
        int chunk = 2 * (SCORE_K * i + score_k);
        query_offset[i] = query_base + swizzled(score_m * SCORE_TILES_M * 16 + row_of_a(lane), chunk + chunk_of_a(lane), ROW_BYTES);
        key_offset[i] = swizzled(score_n * SCORE_TILES_N * 8 + row_of_b(lane), chunk + chunk_of_b(lane), ROW_BYTES);
    }
    /* Values: this warp's columns. */
    unsigned value_offset[VALUE_PAIRS];
#pragma unroll
    for (int i = 0; i < VALUE_PAIRS; i++)
        value_offset[i] = swizzled(row_of_t(lane), 2 * (warp * VALUE_PAIRS + i) + chunk_of_t(lane), ROW_BYTES);
    const unsigned weight_offset = weight_base + row_of_a(lane) * WEIGHT_STRIDE * 2 + chunk_of_a(lane) * CHUNK;
    /* Softmax: this lane's row and first column. */
    const int softmax_row = warp * SOFTMAX_ROWS + lane / SOFTMAX_LANES, softmax_column = lane % SOFTMAX_LANES * 2;

    const long long rows = h * s;
    const int row_blocks = (int)((rows + BLOCK_M - 1) / BLOCK_M), items = (int)b * splits * row_blocks;
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        const int row_block = item % row_blocks, split = item / row_blocks % splits, request = item / row_blocks / splits;
        const long long first_row = request * rows + (long long)row_block * BLOCK_M;
        const int present_rows = (int)(rows - (long long)row_block * BLOCK_M < BLOCK_M ? rows - (long long)row_block * BLOCK_M : BLOCK_M);
        const int all_tiles = (int)((tokens + BLOCK_N - 1) / BLOCK_N);
        const int first_tile = (int)((long long)all_tiles * split / splits);
        const int tiles = (int)((long long)all_tiles * (split + 1) / splits) - first_tile;
        const int start = first_tile * BLOCK_N;
        const int end = (int)(tokens - start < (long long)tiles * BLOCK_N ? tokens : start + (long long)tiles * BLOCK_N);
        const element *z_tile = z + (request * t + start) * K, *kpe_tile = kpe + (request * t + start) * P;

        __syncthreads();
        copy_rows<BLOCK_M>(query_base, qc + first_row * K, qpe + first_row * P, present_rows);
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++) {
            if (i < tiles)
                copy_rows<BLOCK_N>(stage_base + i * STAGE_BYTES, z_tile + (long long)i * BLOCK_N * K,
                                   kpe_tile + (long long)i * BLOCK_N * P, end - start - i * BLOCK_N);
            commit_copies();
        }

        float sum[VALUE_TILES_M][2 * VALUE_PAIRS][4];
#pragma unroll
        for (int m = 0; m < VALUE_TILES_M; m++)
            clear(sum[m]);
        row_state state = no_keys();
        const int visible = visible_keys(t, s, ((long long)row_block * BLOCK_M + softmax_row) % s, causal, end);
        const int visible_to_all = visible_keys(t, s, 0, causal, end);

        int slot = 0;
        for (int tile = 0; tile < tiles; tile++) {
            const int token = start + tile * BLOCK_N;
            wait_for_copies<STAGES - 2>();
            /* The tile has come, for all threads; and all have done with the one before, whose place the next takes. */
            __syncthreads();
            const int ahead = tile + STAGES - 1, free_slot = slot == 0 ? STAGES - 1 : slot - 1;
            const int ahead_rows = ahead < tiles ? end - start - ahead * BLOCK_N : 0;
            const element *z_ahead = z_tile + (ahead < tiles ? (long long)ahead * BLOCK_N * K : 0);
            const element *kpe_ahead = kpe_tile + (ahead < tiles ? (long long)ahead * BLOCK_N * P : 0);
            const unsigned ahead_stage = stage_base + free_slot * STAGE_BYTES;
            const unsigned stage = stage_base + slot * STAGE_BYTES;
            slot = slot == STAGES - 1 ? 0 : slot + 1;

            float score[SCORE_TILES_M][SCORE_TILES_N][4];
#pragma unroll
            for (int m = 0; m < SCORE_TILES_M; m++)
                clear(score[m]);
#pragma unroll
            for (int step = 0; step < SCORE_STEPS; step++) {
                /* The copies ahead are begun bit by bit, so that the tensor cores need not wait for them. */
#pragma unroll
                for (int i = step * copies_of<BLOCK_N> / SCORE_STEPS; i < (step + 1) * copies_of<BLOCK_N> / SCORE_STEPS; i++)
                    copy_one<BLOCK_N>(i, ahead_stage, z_ahead, kpe_ahead, ahead_rows);
                unsigned query[SCORE_TILES_M][4], key[(SCORE_TILES_N + 1) / 2][4];
#pragma unroll
                for (int m = 0; m < SCORE_TILES_M; m++)
                    load_matrix(query[m], query_offset[step % offsets] + step / offsets * 128 + m * 16 * ROW_BYTES);
#pragma unroll
                for (int n = 0; n < SCORE_TILES_N / 2; n++)
                    load_matrix(key[n], stage + key_offset[step % offsets] + step / offsets * 128 + n * 16 * ROW_BYTES);
                if (SCORE_TILES_N % 2 == 1) {
                    unsigned half[2];
                    load_half_matrix(half, stage + key_offset[step % offsets] + step / offsets * 128 + SCORE_TILES_N / 2 * 16 * ROW_BYTES);
                    key[SCORE_TILES_N / 2][0] = half[0];
                    key[SCORE_TILES_N / 2][1] = half[1];
                }
#pragma unroll
                for (int n = 0; n < SCORE_TILES_N; n++)
#pragma unroll
                    for (int m = 0; m < SCORE_TILES_M; m++)
                        mma(score[m][n], query[m], key[n / 2][n % 2 * 2], key[n / 2][n % 2 * 2 + 1]);
            }
            commit_copies();
#pragma unroll
            for (int m = 0; m < SCORE_TILES_M; m++)
#pragma unroll
                for (int n = 0; n < SCORE_TILES_N; n++) {
                    float *to = scores + (score_k * BLOCK_M + (score_m * SCORE_TILES_M + m) * 16 + group) * SCORE_STRIDE +
                                (score_n * SCORE_TILES_N + n) * 8 + quad * 2;
                    *reinterpret_cast<float2 *>(to) = make_float2(score[m][n][0], score[m][n][1]);
                    *reinterpret_cast<float2 *>(to + 8 * SCORE_STRIDE) = make_float2(score[m][n][2], score[m][n][3]);
                }
            __syncthreads();

            float2 weight[SOFTMAX_PAIRS];
            float largest = NO_SCORE;
#pragma unroll
            for (int i = 0; i < SOFTMAX_PAIRS; i++) {
                const float *from = scores + softmax_row * SCORE_STRIDE + softmax_column + i * 2 * SOFTMAX_LANES;
                weight[i] = *reinterpret_cast<const float2 *>(from);
#pragma unroll
                for (int part_k = 1; part_k < SCORE_K; part_k++) {
                    float2 more = *reinterpret_cast<const float2 *>(from + part_k * BLOCK_M * SCORE_STRIDE);
                    weight[i].x += more.x;
                    weight[i].y += more.y;
                }
            }
            if (token + BLOCK_N > visible_to_all)
#pragma unroll
                for (int i = 0; i < SOFTMAX_PAIRS; i++) {
                    int column = token + softmax_column + i * 2 * SOFTMAX_LANES;
                    weight[i].x = column < visible ? weight[i].x : NO_SCORE;
                    weight[i].y = column + 1 < visible ? weight[i].y : NO_SCORE;
                }
#pragma unroll
            for (int i = 0; i < SOFTMAX_PAIRS; i++)
                largest = fmaxf(largest, fmaxf(weight[i].x, weight[i].y));
#pragma unroll
            for (int other = 1; other < SOFTMAX_LANES; other *= 2)
                largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, other));
            const float factor = follow(state, largest * log2_scale), shift = subtrahend(state);
#pragma unroll
            for (int i = 0; i < SOFTMAX_PAIRS; i++) {
                weight[i].x = power_of_two(fmaf(weight[i].x, log2_scale, -shift));
                weight[i].y = power_of_two(fmaf(weight[i].y, log2_scale, -shift));
                state.total += weight[i].x + weight[i].y;
                weights[(softmax_row * WEIGHT_STRIDE + softmax_column) / 2 + i * SOFTMAX_LANES] = pack(weight[i].x, weight[i].y);
            }
            if (lane % SOFTMAX_LANES == 0)
                factors[softmax_row] = factor;
            if (__syncthreads_or(factor != 1.0f)) {
#pragma unroll
                for (int m = 0; m < VALUE_TILES_M; m++)
                    scale_rows(sum[m], factors[m * 16 + group], factors[m * 16 + group + 8]);
            }

#pragma unroll
            for (int step = 0; step < BLOCK_N / 16; step++) {
                unsigned row_weights[VALUE_TILES_M][4];
#pragma unroll
                for (int m = 0; m < VALUE_TILES_M; m++)
                    load_matrix(row_weights[m], weight_offset + m * 16 * WEIGHT_STRIDE * 2 + step * 32);
#pragma unroll
                for (int n = 0; n < VALUE_PAIRS; n++) {
                    unsigned value[4];
                    load_transposed(value, stage + value_offset[n] + step * 16 * ROW_BYTES);
#pragma unroll
                    for (int m = 0; m < VALUE_TILES_M; m++) {
                        mma(sum[m][2 * n], row_weights[m], value[0], value[1]);
                        mma(sum[m][2 * n + 1], row_weights[m], value[2], value[3]);
                    }
                }
            }
        }

        /* Where there was no tile, the queries are still on their way. */
        wait_for_copies<0>();
#pragma unroll
        for (int other = 1; other < SOFTMAX_LANES; other *= 2)
            state.total += __shfl_xor_sync(~0u, state.total, other);
        __syncthreads();
        if (lane % SOFTMAX_LANES == 0) {
            factors[softmax_row] = reciprocal_total(state.total);
            if (softmax_row < present_rows)
                lse[split * b * rows + first_row + softmax_row] = lse_of(state);
        }
        __syncthreads();
        element *to = part + (split * b * rows + first_row) * K + warp * VALUE_PAIRS * 16 + quad * 2;
#pragma unroll
        for (int m = 0; m < VALUE_TILES_M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int row = m * 16 + half * 8 + group;
                float factor = factors[row];
                if (row < present_rows)
#pragma unroll
                    for (int n = 0; n < 2 * VALUE_PAIRS; n++)
                        *reinterpret_cast<unsigned *>(to + (long long)row * K + n * 8) =
                            pack(sum[m][n][2 * half] * factor, sum[m][n][2 * half + 1] * factor);
            }
    }
}

#endif
