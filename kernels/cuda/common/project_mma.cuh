/* o = latent · w_uv on tensor cores, tile after tile: what the v1 project stages are made of.
 *
 * A block of 4 warps takes one head and 64 of its b * s rows, all D columns, 32 latent dimensions at a time: copy the
 * tiles to shared memory, wait, compute, wait. A warp has 16 rows.
 *
 * Before inclusion: D, K. */
#ifndef COMMON_PROJECT_MMA_CUH
#define COMMON_PROJECT_MMA_CUH

#include "mma.cuh"
#include "rows.cuh"

#define PROJECT_THREADS 128
#define PROJECT_M 64
#define PROJECT_K 32
#define LATENT_ROW (PROJECT_K + CHUNK_ELEMENTS)
#define WEIGHT_ROW (D + CHUNK_ELEMENTS)

static_assert(D % 16 == 0 && K % PROJECT_K == 0, "a warp has pairs of mma tiles");

/* latent [b,h,s,K], w_uv [h,K,D]. Leaves in `sum` the 16 rows from 64 * row_block + 16 * warp on. */
INLINE void project_rows(const element *latent, const element *w_uv, float (&sum)[D / 8][4], int b, int s, int h,
                         int head, int row_block)
{
    __shared__ __align__(16) element rows[PROJECT_M * LATENT_ROW], weights[PROJECT_K * WEIGHT_ROW];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned row_address =
        shared_address(rows + (warp * 16 + row_of_a(lane)) * LATENT_ROW + chunk_of_a(lane) * CHUNK_ELEMENTS);
    const unsigned weight_address =
        shared_address(weights + row_of_t(lane) * WEIGHT_ROW + chunk_of_t(lane) * CHUNK_ELEMENTS);
    clear(sum);
    for (int start = 0; start < K; start += PROJECT_K) {
        __syncthreads();
        for (int i = threadIdx.x; i < PROJECT_M * PROJECT_K / CHUNK_ELEMENTS; i += PROJECT_THREADS) {
            int row = i / (PROJECT_K / CHUNK_ELEMENTS), chunk = i % (PROJECT_K / CHUNK_ELEMENTS);
            uint4 data = make_uint4(0, 0, 0, 0);
            if (row_block * PROJECT_M + row < b * s)
                data = *reinterpret_cast<const uint4 *>(
                    latent + (long long)row_in_tensor(row_block * PROJECT_M + row, s, h, head) * K + start +
                    chunk * CHUNK_ELEMENTS);
            *reinterpret_cast<uint4 *>(rows + row * LATENT_ROW + chunk * CHUNK_ELEMENTS) = data;
        }
        for (int i = threadIdx.x; i < PROJECT_K * D / CHUNK_ELEMENTS; i += PROJECT_THREADS) {
            int row = i / (D / CHUNK_ELEMENTS), chunk = i % (D / CHUNK_ELEMENTS);
            *reinterpret_cast<uint4 *>(weights + row * WEIGHT_ROW + chunk * CHUNK_ELEMENTS) =
                *reinterpret_cast<const uint4 *>(w_uv + ((long long)head * K + start + row) * D +
                                                 chunk * CHUNK_ELEMENTS);
        }
        __syncthreads();
#pragma unroll
        for (int step = 0; step < PROJECT_K / 16; step++) {
            unsigned a[4], weight[4];
            load_matrix(a, row_address + step * 32);
#pragma unroll
            for (int n = 0; n < D / 16; n++) {
                load_transposed(weight, weight_address + (step * 16 * WEIGHT_ROW + n * 16) * 2);
                mma(sum[2 * n], a, weight[0], weight[1]);
                mma(sum[2 * n + 1], a, weight[2], weight[3]);
            }
        }
    }
}

#endif
