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
#include "rows.cuh"
#include "softmax.cuh"

#define THREADS (WARPS_M * WARPS_N * 32)
#define TILES_M (BLOCK_M / WARPS_M / 16)
#define PAIRS_N (BLOCK_N / WARPS_N / 16)
#define WEIGHT_BYTES SWIZZLED_ROW(BLOCK_N)
#define TILE_ROW_BYTES SWIZZLED_ROW(BLOCK_K)
#define STAGE_BYTES (BLOCK_M * TILE_ROW_BYTES)
#define STEPS (K / BLOCK_K)
/* Shared memory of a block: K * WEIGHT_BYTES + STAGES * STAGE_BYTES. */

static_assert(BLOCK_M % (16 * WARPS_M) == 0 && BLOCK_N % (16 * WARPS_N) == 0 && BLOCK_K % 16 == 0 && K % BLOCK_K == 0,
              "");

/* The largest of `largest` and `parts` lse, and the sum of 2^(lse - largest) over them. */
INLINE float largest_lse(const float *lse, int parts, long long stride, float largest)
{
#pragma unroll 1
    for (int i = 0; i < parts; i++)
        largest = fmaxf(largest, lse[i * stride]);
    return largest;
}

INLINE float total_lse(const float *lse, int parts, long long stride, float largest)
{
    float total = 0.0f;
#pragma unroll 1
    for (int i = 0; i < parts; i++)
        total += largest == NO_SCORE ? 0.0f : power_of_two(lse[i * stride] - largest);
    return total;
}

INLINE void prefetch(const float *from)
{
    asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
}

/* part [parts,b,h,s,K] and part_lse [parts,b,h,s]; fresh [fresh_parts,b,h,s,D] and fresh_lse [fresh_parts,b,h,s], which
 * are not touched unless has_fresh; w_uv [h,K,D], o [b,h,s,D]. Every part is normalised by itself; either number of parts
 * may be 0, and the latent ones more than 1 only if `merging`. Block (x, y, z): groups of rows from x on, head y, columns
 * from BLOCK_N * z on. */
template <bool merging, bool has_fresh>
INLINE void merge_and_project(const element *part, const float *part_lse, int parts, const element *fresh,
                              const float *fresh_lse, int fresh_parts, const element *w_uv, element *o, int b, int s,
                              int h)
{
    extern __shared__ __align__(128) char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
    const int warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;
    const unsigned weights = shared_address(shared);
    const int head = blockIdx.y, all_rows = b * s, row_blocks = (all_rows + BLOCK_M - 1) / BLOCK_M;
    const long long lse_stride = (long long)b * h * s;
    const element *weight = w_uv + (long long)head * K * D + blockIdx.z * BLOCK_N;

    const tile_copy<THREADS, BLOCK_N, BLOCK_K, WEIGHT_BYTES, 0> weight_copy(threadIdx.x);
    auto copy_weights = [&](int step) {
        weight_copy.begin_all(weights + step * BLOCK_K * WEIGHT_BYTES,
                              weight + (long long)step * BLOCK_K * D + weight_copy.first(D), D);
    };

    /* The tile to be copied next; for each chunk of this thread in such a tile its place in shared memory, the row of the
     * tensors it belongs to (none: -1) and, where parts are merged, the largest lse and the factor of that row. */
    constexpr int chunks = BLOCK_K / CHUNK_ELEMENTS, copies = (BLOCK_M * chunks + THREADS - 1) / THREADS;
    int ahead_block = blockIdx.x, ahead_step = 0, ahead_slot = 0, ahead_row[copies];
    unsigned place[copies];
    float ahead_largest[copies], ahead_factor[copies];
#pragma unroll
    for (int i = 0; i < copies; i++) {
        const int index = i * THREADS + threadIdx.x;
        place[i] = swizzled(index / chunks, index % chunks, TILE_ROW_BYTES);
        keep(place[i]);
    }
    auto copy_ahead = [&]() {
        if (parts == 0 || ahead_block >= row_blocks)
            return;
        if (ahead_step == 0)
#pragma unroll
            for (int i = 0; i < copies; i++) {
                const int in_tile = (i * THREADS + (int)threadIdx.x) / chunks, row = ahead_block * BLOCK_M + in_tile;
                ahead_row[i] = in_tile < BLOCK_M && row < all_rows ? row_in_tensor(row, s, h, head) : -1;
                if (merging && ahead_row[i] >= 0) {
                    ahead_largest[i] = largest_lse(part_lse + ahead_row[i], parts, lse_stride, NO_SCORE);
                    ahead_factor[i] =
                        reciprocal_total(total_lse(part_lse + ahead_row[i], parts, lse_stride, ahead_largest[i]));
                }
            }
        const unsigned stage = K * WEIGHT_BYTES + ahead_slot * STAGE_BYTES;
        const element *data = part + ahead_step * BLOCK_K + threadIdx.x % chunks * CHUNK_ELEMENTS;
#pragma unroll
        for (int i = 0; i < copies; i++) {
            if (BLOCK_M * chunks % THREADS != 0 && i * THREADS + threadIdx.x >= BLOCK_M * chunks)
                continue;
            const bool present = ahead_row[i] >= 0;
            if (!merging) {
                copy_async(weights + stage + place[i], data + (present ? (long long)ahead_row[i] * K : 0), present);
                continue;
            }
            float merged[CHUNK_ELEMENTS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
            if (present && ahead_factor[i] > 0.0f)
#pragma unroll 2
                for (int j = 0; j < parts; j++) {
                    uint4 eight = *reinterpret_cast<const uint4 *>(data + (j * lse_stride + ahead_row[i]) * K);
                    const float share =
                        ahead_factor[i] * power_of_two(part_lse[j * lse_stride + ahead_row[i]] - ahead_largest[i]);
                    const unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
                    for (int x = 0; x < 4; x++) {
                        float2 values = unpack(pairs[x]);
                        merged[2 * x] += share * values.x;
                        merged[2 * x + 1] += share * values.y;
                    }
                }
            *reinterpret_cast<uint4 *>(shared + stage + place[i]) =
                make_uint4(pack(merged[0], merged[1]), pack(merged[2], merged[3]), pack(merged[4], merged[5]),
                           pack(merged[6], merged[7]));
        }
        ahead_slot = ahead_slot == STAGES - 1 ? 0 : ahead_slot + 1;
        if (++ahead_step == STEPS) {
            ahead_step = 0;
            ahead_block += gridDim.x;
        }
    };
    /* The first tiles, and with the last of them what is left of w_uv. */
#pragma unroll 1
    for (int i = 0; i < STAGES - 1 && parts > 0; i++) {
#pragma unroll 1
        for (int step = i; step < (i == STAGES - 2 ? STEPS : i + 1) && step < STEPS; step++)
            copy_weights(step);
        copy_ahead();
        commit_copies();
    }

    /* Where this lane's rows begin in a tile and in w_uv: chunks are swizzled within groups of 8, so 4 steps of 2 repeat. */
    unsigned row_offset[4], weight_offset[PAIRS_N];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        row_offset[i] = swizzled(warp_m * TILES_M * 16 + row_of_a(lane), 2 * i + chunk_of_a(lane), TILE_ROW_BYTES);
        keep(row_offset[i]);
    }
#pragma unroll
    for (int i = 0; i < PAIRS_N; i++) {
        weight_offset[i] =
            weights + swizzled(row_of_t(lane), 2 * (warp_n * PAIRS_N + i) + chunk_of_t(lane), WEIGHT_BYTES);
        keep(weight_offset[i]);
    }

    int slot = 0;
#pragma unroll 1
    for (int row_block = blockIdx.x; row_block < row_blocks; row_block += gridDim.x) {
        const int first_column = blockIdx.z * BLOCK_N + warp_n * PAIRS_N * 16, column = first_column + quad * 2;
        int rows[TILES_M][2];
        unsigned newer[has_fresh ? TILES_M : 1][2][has_fresh ? 2 * PAIRS_N : 1];
#pragma unroll
        for (int m = 0; m < TILES_M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = row_block * BLOCK_M + (warp_m * TILES_M + m) * 16 + half * 8 + group;
                const int at = row < all_rows ? row_in_tensor(row, s, h, head) : -1;
                rows[m][half] = at;
                if (has_fresh && fresh_parts > 0) {
                    /* Under way while the rows are being projected. */
                    if (at >= 0) {
                        prefetch(fresh_lse + at);
                        prefetch((parts > 0 ? part_lse : fresh_lse) + at);
                    }
#pragma unroll
                    for (int n = 0; n < 2 * PAIRS_N; n++)
                        newer[m][half][n] =
                            at >= 0 ? *reinterpret_cast<const unsigned *>(fresh + (long long)at * D + column + n * 8)
                                    : 0;
                }
            }

        float sum[TILES_M][2 * PAIRS_N][4];
#pragma unroll
        for (int m = 0; m < TILES_M; m++)
            clear(sum[m]);
        if (parts > 0)
#pragma unroll 1
            for (int step = 0; step < STEPS; step++) {
                wait_for_copies<STAGES - 2>();
                /* The tile has come, for all threads; and all have done with the one before, whose place the next takes. */
                __syncthreads();
                copy_ahead();
                commit_copies();
                const unsigned stage = weights + K * WEIGHT_BYTES + slot * STAGE_BYTES;
                slot = slot == STAGES - 1 ? 0 : slot + 1;
#pragma unroll
                for (int x = 0; x < BLOCK_K / 16; x++) {
                    unsigned a[TILES_M][4];
#pragma unroll
                    for (int m = 0; m < TILES_M; m++)
                        load_matrix(a[m], stage + row_offset[x % 4] + x / 4 * 128 + m * 16 * TILE_ROW_BYTES);
#pragma unroll
                    for (int n = 0; n < PAIRS_N; n++) {
                        unsigned w[4];
                        load_transposed(w, weight_offset[n] + (step * BLOCK_K + x * 16) * WEIGHT_BYTES);
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
                const int at = rows[m][half];
                if (has_fresh && fresh_parts > 0 && at >= 0) {
                    const float largest = largest_lse(fresh_lse + at, fresh_parts, lse_stride,
                                                      largest_lse(part_lse + at, parts, lse_stride, NO_SCORE));
                    const float total = total_lse(part_lse + at, parts, lse_stride, largest);
                    const float factor =
                        reciprocal_total(total + total_lse(fresh_lse + at, fresh_parts, lse_stride, largest));
                    const float latent = total * factor;
                    float share = factor > 0.0f ? factor * power_of_two(fresh_lse[at] - largest) : 0.0f;
#pragma unroll
                    for (int n = 0; n < 2 * PAIRS_N; n++) {
                        const float2 pair = unpack(newer[m][half][n]);
                        sum[m][n][2 * half] = latent * sum[m][n][2 * half] + share * pair.x;
                        sum[m][n][2 * half + 1] = latent * sum[m][n][2 * half + 1] + share * pair.y;
                    }
#pragma unroll 1
                    for (int i = 1; i < fresh_parts; i++) {
                        share = factor > 0.0f ? factor * power_of_two(fresh_lse[i * lse_stride + at] - largest) : 0.0f;
                        const element *from = fresh + (i * lse_stride + at) * D + column;
#pragma unroll
                        for (int n = 0; n < 2 * PAIRS_N; n++) {
                            const float2 pair = unpack(*reinterpret_cast<const unsigned *>(from + n * 8));
                            sum[m][n][2 * half] += share * pair.x;
                            sum[m][n][2 * half + 1] += share * pair.y;
                        }
                    }
                }
#pragma unroll
                for (int n = 0; n < PAIRS_N; n++)
                    store_row(o + (long long)at * D + first_column + n * 16, sum[m][2 * n][2 * half],
                              sum[m][2 * n][2 * half + 1], sum[m][2 * n + 1][2 * half], sum[m][2 * n + 1][2 * half + 1],
                              at >= 0);
            }
    }
}

#endif
