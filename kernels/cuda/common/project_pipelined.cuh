/* Merging of partial results, and o = latent · w_uv on tensor cores, pipelined: what the v2 project and combine stages
 * are made of.
 *
 * A block takes one head, BLOCK_N of the D columns, and every gridDim.x'th of the groups of BLOCK_M of its b * s rows. Its
 * part of w_uv stays in shared memory from first to last; the rows pass through a ring of STAGES tiles of BLOCK_K latent
 * dimensions, filled by cp.async across the end of one group of rows into the next, so that memory is never idle. Where
 * the latent result is in several parts, the tiles are merged by their lse on the way to shared memory. Parts of
 * decompressed tokens (`fresh`), if any, are merged with the projection in registers; the first of them is under way
 * while its rows are being projected.
 *
 * Before inclusion: D, K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS_M, WARPS_N. */
#ifndef COMMON_PROJECT_PIPELINED_CUH
#define COMMON_PROJECT_PIPELINED_CUH

#include "mma.cuh"
#include "softmax.cuh"

#define THREADS (WARPS_M * WARPS_N * 32)
#define TILES_M (BLOCK_M / WARPS_M / 16)
#define PAIRS_N (BLOCK_N / WARPS_N / 16)
#define WEIGHT_BYTES SWIZZLED_ROW(BLOCK_N)
#define TILE_ROW_BYTES SWIZZLED_ROW(BLOCK_K)
#define STAGE_BYTES (BLOCK_M * TILE_ROW_BYTES)
#define STEPS (K / BLOCK_K)
/* Shared memory of a block: K * WEIGHT_BYTES + STAGES * STAGE_BYTES. */

static_assert(BLOCK_M % (16 * WARPS_M) == 0 && BLOCK_N % (16 * WARPS_N) == 0 && BLOCK_K % 16 == 0 && K % BLOCK_K == 0, "");

/* Row `row` (0 to b * s - 1, request and query) of head `head` in tensors [b,h,s,…]. */
INLINE long long row_in_tensor(long long row, long long s, long long h, long long head)
{
    return (row / s * h + head) * s + row % s;
}

/* The largest of `largest` and `parts` lse, and the sum of 2^(lse - largest) over them. */
INLINE float largest_lse(const float *lse, int parts, long long stride, float largest)
{
    for (int i = 0; i < parts; i++)
        largest = fmaxf(largest, lse[i * stride]);
    return largest;
}

INLINE float total_lse(const float *lse, int parts, long long stride, float largest)
{
    float total = 0.0f;
    for (int i = 0; i < parts; i++)
        total += largest == NO_SCORE ? 0.0f : power_of_two(lse[i * stride] - largest);
    return total;
}

/* How much a row of the merged latent result and the first fresh part count, and what the other fresh parts need. */
struct shares {
    float latent, fresh, largest, factor;
};

/* part [parts,b,h,s,K] and part_lse [parts,b,h,s]; fresh [fresh_parts,b,h,s,D] and fresh_lse [fresh_parts,b,h,s], which
 * are not touched unless has_fresh; w_uv [h,K,D], o [b,h,s,D]. Every part is normalised by itself; either number of parts
 * may be 0. Block (x, y, z): groups of rows from x on, head y, columns from BLOCK_N * z on. */
template <bool has_fresh>
INLINE void merge_and_project(const element *part, const float *part_lse, int parts, const float *fresh, const float *fresh_lse,
                              int fresh_parts, const element *w_uv, element *o, long long b, long long s, long long h)
{
    extern __shared__ __align__(128) char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
    const int warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;
    const unsigned weights = shared_address(shared), ring = weights + K * WEIGHT_BYTES;
    const long long head = blockIdx.y, all_rows = b * s, lse_stride = b * h * s;
    const element *weight = w_uv + head * K * D + blockIdx.z * BLOCK_N;
    const int row_blocks = (int)((all_rows + BLOCK_M - 1) / BLOCK_M);
    const int steps = parts > 0 ? (row_blocks - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x * STEPS : 0;

    auto copy_weights = [&](int step) {
        constexpr int chunks = BLOCK_N / CHUNK_ELEMENTS;
#pragma unroll
        for (int i = 0; i < (BLOCK_K * chunks + THREADS - 1) / THREADS; i++) {
            int index = i * THREADS + threadIdx.x, row = index / chunks, chunk = index % chunks;
            if (BLOCK_K * chunks % THREADS == 0 || row < BLOCK_K)
                copy_async(weights + swizzled(step * BLOCK_K + row, chunk, WEIGHT_BYTES),
                           weight + (long long)(step * BLOCK_K + row) * D + chunk * CHUNK_ELEMENTS, true);
        }
    };
    auto copy_step = [&](int step) {
        if (step >= steps)
            return;
        constexpr int chunks = BLOCK_K / CHUNK_ELEMENTS;
        const long long first_row = (blockIdx.x + (long long)(step / STEPS) * gridDim.x) * BLOCK_M;
        const unsigned stage = step % STAGES * STAGE_BYTES;
#pragma unroll 4
        for (int i = 0; i < (BLOCK_M * chunks + THREADS - 1) / THREADS; i++) {
            const int index = i * THREADS + threadIdx.x, row = index / chunks, chunk = index % chunks;
            if (BLOCK_M * chunks % THREADS != 0 && row >= BLOCK_M)
                continue;
            const bool present = first_row + row < all_rows;
            const long long from = row_in_tensor(present ? first_row + row : 0, s, h, head);
            const element *data = part + from * K + step % STEPS * BLOCK_K + chunk * CHUNK_ELEMENTS;
            if (parts == 1) {
                copy_async(ring + stage + swizzled(row, chunk, TILE_ROW_BYTES), data, present);
                continue;
            }
            float merged[CHUNK_ELEMENTS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
            if (present) {
                float largest = largest_lse(part_lse + from, parts, lse_stride, NO_SCORE);
                float factor = reciprocal_total(total_lse(part_lse + from, parts, lse_stride, largest));
                for (int j = 0; j < parts; j++) {
                    float share = factor > 0.0f ? factor * power_of_two(part_lse[j * lse_stride + from] - largest) : 0.0f;
                    uint4 eight = *reinterpret_cast<const uint4 *>(data + j * lse_stride * K);
                    const unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
                    for (int x = 0; x < 4; x++) {
                        float2 values = unpack(pairs[x]);
                        merged[2 * x] += share * values.x;
                        merged[2 * x + 1] += share * values.y;
                    }
                }
            }
            *reinterpret_cast<uint4 *>(shared + K * WEIGHT_BYTES + stage + swizzled(row, chunk, TILE_ROW_BYTES)) =
                make_uint4(pack(merged[0], merged[1]), pack(merged[2], merged[3]), pack(merged[4], merged[5]), pack(merged[6], merged[7]));
        }
    };
    /* The first tiles, and with the last of them what is left of w_uv. */
    for (int i = 0; i < STAGES - 1; i++) {
        if (steps > 0 && i < STEPS)
            copy_weights(i);
        copy_step(i);
        if (steps > 0 && i == STAGES - 2)
            for (int rest = STAGES - 1; rest < STEPS; rest++)
                copy_weights(rest);
        commit_copies();
    }

    int step = 0;
    for (int row_block = blockIdx.x; row_block < row_blocks; row_block += gridDim.x) {
        const long long first_row = (long long)row_block * BLOCK_M;
        const long long column = blockIdx.z * BLOCK_N + warp_n * PAIRS_N * 16 + quad * 2;
        long long rows[TILES_M][2];
        shares share[TILES_M][2];
        float2 newer[has_fresh ? TILES_M : 1][2][has_fresh ? 2 * PAIRS_N : 1];
#pragma unroll
        for (int m = 0; m < TILES_M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const long long row = first_row + (warp_m * TILES_M + m) * 16 + half * 8 + group;
                const long long at = row < all_rows ? row_in_tensor(row, s, h, head) : -1;
                rows[m][half] = at;
                if (has_fresh) {
#pragma unroll
                    for (int n = 0; n < 2 * PAIRS_N; n++)
                        newer[m][half][n] = at >= 0 && fresh_parts > 0 ? *reinterpret_cast<const float2 *>(fresh + at * D + column + n * 8)
                                                                       : make_float2(0.0f, 0.0f);
                    share[m][half] = {1.0f, 0.0f, NO_SCORE, 0.0f};
                    if (at >= 0 && fresh_parts > 0) {
                        float largest = largest_lse(fresh_lse + at, fresh_parts, lse_stride, largest_lse(part_lse + at, parts, lse_stride, NO_SCORE));
                        float latent = total_lse(part_lse + at, parts, lse_stride, largest);
                        float factor = reciprocal_total(latent + total_lse(fresh_lse + at, fresh_parts, lse_stride, largest));
                        float first = factor > 0.0f ? factor * power_of_two(fresh_lse[at] - largest) : 0.0f;
                        share[m][half] = {latent * factor, first, largest, factor};
                    }
                }
            }

        float sum[TILES_M][2 * PAIRS_N][4];
#pragma unroll
        for (int m = 0; m < TILES_M; m++)
            clear(sum[m]);
        if (parts > 0)
            for (int part_of_k = 0; part_of_k < STEPS; part_of_k++, step++) {
                wait_for_copies<STAGES - 2>();
                /* The tile has come, for all threads; and all have done with the one before, whose place the next takes. */
                __syncthreads();
                copy_step(step + STAGES - 1);
                commit_copies();
                const unsigned stage = ring + step % STAGES * STAGE_BYTES;
#pragma unroll
                for (int x = 0; x < BLOCK_K / 16; x++) {
                    unsigned a[TILES_M][4];
#pragma unroll
                    for (int m = 0; m < TILES_M; m++)
                        load_matrix(a[m], stage + swizzled((warp_m * TILES_M + m) * 16 + row_of_a(lane), 2 * x + chunk_of_a(lane), TILE_ROW_BYTES));
#pragma unroll
                    for (int n = 0; n < PAIRS_N; n++) {
                        unsigned w[4];
                        load_transposed(w, weights + swizzled(part_of_k * BLOCK_K + x * 16 + row_of_t(lane),
                                                              2 * (warp_n * PAIRS_N + n) + chunk_of_t(lane), WEIGHT_BYTES));
#pragma unroll
                        for (int m = 0; m < TILES_M; m++) {
                            mma(sum[m][2 * n], a[m], w[0], w[1]);
                            mma(sum[m][2 * n + 1], a[m], w[2], w[3]);
                        }
                    }
                }
            }

#pragma unroll
        for (int m = 0; m < TILES_M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const long long at = rows[m][half];
                if (at < 0)
                    continue;
                if (has_fresh) {
                    const shares by = share[m][half];
#pragma unroll
                    for (int n = 0; n < 2 * PAIRS_N; n++) {
                        sum[m][n][2 * half] = by.latent * sum[m][n][2 * half] + by.fresh * newer[m][half][n].x;
                        sum[m][n][2 * half + 1] = by.latent * sum[m][n][2 * half + 1] + by.fresh * newer[m][half][n].y;
                    }
                    for (int i = 1; i < fresh_parts; i++) {
                        float more = by.factor > 0.0f ? by.factor * power_of_two(fresh_lse[i * lse_stride + at] - by.largest) : 0.0f;
                        const float *from = fresh + (i * lse_stride + at) * D + column;
#pragma unroll
                        for (int n = 0; n < 2 * PAIRS_N; n++) {
                            float2 pair = *reinterpret_cast<const float2 *>(from + n * 8);
                            sum[m][n][2 * half] += more * pair.x;
                            sum[m][n][2 * half + 1] += more * pair.y;
                        }
                    }
                }
#pragma unroll
                for (int n = 0; n < 2 * PAIRS_N; n++)
                    store_pair(o + at * D + column + n * 8, sum[m][n][2 * half], sum[m][n][2 * half + 1]);
            }
    }
}

#endif
