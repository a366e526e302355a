/* Merging of partial results, and o = latent · w_uv on tensor cores, pipelined: what the v2 project and combine stages
 * are made of.
 *
 * A block takes one head, BLOCK_M of its b * s rows and BLOCK_N of the D columns. The rows lie in shared memory as a whole,
 * w_uv passes through a ring of STAGES tiles of BLOCK_K latent dimensions, filled by cp.async. Where the latent result is
 * in one part, its rows come by cp.async too, tile by tile with w_uv; where it is in several, they are merged by their lse
 * on the way to shared memory, while the first tiles of w_uv are coming. Parts of decompressed tokens (`fresh`), if any,
 * are merged with the projection in registers.
 *
 * Before inclusion: D, K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS_M, WARPS_N. */
#ifndef COMMON_PROJECT_PIPELINED_CUH
#define COMMON_PROJECT_PIPELINED_CUH

#include "mma.cuh"
#include "softmax.cuh"

#define THREADS (WARPS_M * WARPS_N * 32)
#define TILES_M (BLOCK_M / WARPS_M / 16)
#define PAIRS_N (BLOCK_N / WARPS_N / 16)
#define ROW_BYTES SWIZZLED_ROW(K)
#define WEIGHT_BYTES SWIZZLED_ROW(BLOCK_N)
#define STAGE_BYTES (BLOCK_K * WEIGHT_BYTES)
#define STEPS (K / BLOCK_K)
/* Shared memory of a block: BLOCK_M * ROW_BYTES + STAGES * STAGE_BYTES. */

static_assert(BLOCK_M % (16 * WARPS_M) == 0 && BLOCK_N % (16 * WARPS_N) == 0 && BLOCK_K % 16 == 0 && K % BLOCK_K == 0, "");

/* Row `row` (0 to b * s - 1, request and query) of head `head` in tensors [b,h,s,…]. */
INLINE long long row_in_tensor(long long row, long long s, long long h, long long head)
{
    return (row / s * h + head) * s + row % s;
}

/* The largest of two groups of lse, and the sum of 2^(lse - largest) over one of them. */
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

/* part [parts,b,h,s,K] and part_lse [parts,b,h,s]; fresh [fresh_parts,b,h,s,D] and fresh_lse [fresh_parts,b,h,s];
 * w_uv [h,K,D], o [b,h,s,D]. Every part is normalised by itself; either number of parts may be 0. */
INLINE void merge_and_project(const element *part, const float *part_lse, int parts, const float *fresh, const float *fresh_lse,
                              int fresh_parts, const element *w_uv, element *o, long long b, long long s, long long h,
                              long long head, long long row_block, long long column_block)
{
    extern __shared__ __align__(128) char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
    const int warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;
    const unsigned row_base = shared_address(shared), ring = row_base + BLOCK_M * ROW_BYTES;
    const long long all_rows = b * s, first_row = row_block * BLOCK_M, lse_stride = b * h * s;
    const element *weight = w_uv + head * K * D + column_block * BLOCK_N;

    auto copy_step = [&](int step) {
        if (step < STEPS && parts > 0) {
            constexpr int chunks = BLOCK_N / CHUNK_ELEMENTS, row_chunks = BLOCK_K / CHUNK_ELEMENTS;
            const unsigned stage = ring + step % STAGES * STAGE_BYTES;
#pragma unroll
            for (int i = 0; i < (BLOCK_K * chunks + THREADS - 1) / THREADS; i++) {
                int index = i * THREADS + threadIdx.x, row = index / chunks, chunk = index % chunks;
                if (BLOCK_K * chunks % THREADS == 0 || row < BLOCK_K)
                    copy_async(stage + swizzled(row, chunk, WEIGHT_BYTES), weight + (long long)(step * BLOCK_K + row) * D + chunk * CHUNK_ELEMENTS,
                               true);
            }
            if (parts == 1)
#pragma unroll
                for (int i = 0; i < (BLOCK_M * row_chunks + THREADS - 1) / THREADS; i++) {
                    int index = i * THREADS + threadIdx.x, row = index / row_chunks, chunk = step * row_chunks + index % row_chunks;
                    bool present = first_row + row < all_rows;
                    if (BLOCK_M * row_chunks % THREADS == 0 || row < BLOCK_M)
                        copy_async(row_base + swizzled(row, chunk, ROW_BYTES),
                                   part + row_in_tensor(present ? first_row + row : 0, s, h, head) * K + chunk * CHUNK_ELEMENTS, present);
                }
        }
        commit_copies();
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        copy_step(i);

    if (parts > 1) {
        constexpr int chunks = K / CHUNK_ELEMENTS;
        for (int index = threadIdx.x; index < BLOCK_M * chunks; index += THREADS) {
            int row = index / chunks, chunk = index % chunks;
            float merged[CHUNK_ELEMENTS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
            if (first_row + row < all_rows) {
                long long from = row_in_tensor(first_row + row, s, h, head);
                float largest = largest_lse(part_lse + from, parts, lse_stride, NO_SCORE);
                float factor = reciprocal_total(total_lse(part_lse + from, parts, lse_stride, largest));
                for (int i = 0; i < parts; i++) {
                    float share = factor > 0.0f ? factor * power_of_two(part_lse[i * lse_stride + from] - largest) : 0.0f;
                    uint4 data = *reinterpret_cast<const uint4 *>(part + (i * lse_stride + from) * K + chunk * CHUNK_ELEMENTS);
                    const unsigned pairs[4] = {data.x, data.y, data.z, data.w};
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        float2 values = unpack(pairs[j]);
                        merged[2 * j] += share * values.x;
                        merged[2 * j + 1] += share * values.y;
                    }
                }
            }
            *reinterpret_cast<uint4 *>(shared + swizzled(row, chunk, ROW_BYTES)) =
                make_uint4(pack(merged[0], merged[1]), pack(merged[2], merged[3]), pack(merged[4], merged[5]), pack(merged[6], merged[7]));
        }
    }

    float sum[TILES_M][2 * PAIRS_N][4];
#pragma unroll
    for (int m = 0; m < TILES_M; m++)
        clear(sum[m]);
    if (parts > 0)
        for (int step = 0; step < STEPS; step++) {
            wait_for_copies<STAGES - 2>();
            /* The tile has come, for all threads; and all have done with the one before, whose place the next takes. */
            __syncthreads();
            copy_step(step + STAGES - 1);
            const unsigned stage = ring + step % STAGES * STAGE_BYTES;
#pragma unroll
            for (int x = 0; x < BLOCK_K / 16; x++) {
                unsigned a[TILES_M][4];
#pragma unroll
                for (int m = 0; m < TILES_M; m++)
                    load_matrix(a[m], row_base + swizzled((warp_m * TILES_M + m) * 16 + row_of_a(lane),
                                                          step * (BLOCK_K / 8) + 2 * x + chunk_of_a(lane), ROW_BYTES));
#pragma unroll
                for (int n = 0; n < PAIRS_N; n++) {
                    unsigned w[4];
                    load_transposed(w, stage + swizzled(x * 16 + row_of_t(lane), 2 * (warp_n * PAIRS_N + n) + chunk_of_t(lane), WEIGHT_BYTES));
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
            const long long row = first_row + (warp_m * TILES_M + m) * 16 + half * 8 + group;
            if (row >= all_rows)
                continue;
            const long long at = row_in_tensor(row, s, h, head);
            const long long column = column_block * BLOCK_N + warp_n * PAIRS_N * 16 + quad * 2;
            float largest = 0.0f, factor = 1.0f, old_share = 1.0f;
            if (fresh_parts > 0) {
                largest = largest_lse(fresh_lse + at, fresh_parts, lse_stride, largest_lse(part_lse + at, parts, lse_stride, NO_SCORE));
                float old_total = total_lse(part_lse + at, parts, lse_stride, largest);
                factor = reciprocal_total(old_total + total_lse(fresh_lse + at, fresh_parts, lse_stride, largest));
                old_share = old_total * factor;
            }
#pragma unroll
            for (int n = 0; n < 2 * PAIRS_N; n++) {
                sum[m][n][2 * half] *= old_share;
                sum[m][n][2 * half + 1] *= old_share;
            }
            for (int i = 0; i < fresh_parts; i++) {
                float share = factor > 0.0f ? factor * power_of_two(fresh_lse[i * lse_stride + at] - largest) : 0.0f;
                const float *more = fresh + (i * lse_stride + at) * D + column;
#pragma unroll
                for (int n = 0; n < 2 * PAIRS_N; n++) {
                    float2 pair = *reinterpret_cast<const float2 *>(more + n * 8);
                    sum[m][n][2 * half] += share * pair.x;
                    sum[m][n][2 * half + 1] += share * pair.y;
                }
            }
#pragma unroll
            for (int n = 0; n < 2 * PAIRS_N; n++)
                store_pair(o + at * D + column + n * 8, sum[m][n][2 * half], sum[m][n][2 * half + 1]);
        }
}

#endif
