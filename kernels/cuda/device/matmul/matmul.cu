/* matmul v0: o = a · bᵀ on tensor cores. A block computes a tile of 128 x 128, a warp 64 x 32 of it, from a ring of
 * tiles in shared memory, 64 of the summed dimension at a time.
 *
 * Before compilation: STAGES, tiles in the ring. */
#include "../../common/mma.cuh"

#define THREADS 256
#define TILE 128
#define STEP 64
#define ROW_BYTES (STEP * 2)
#define TILE_BYTES (TILE * ROW_BYTES)

/* a [m,k], b [n,k], o [m,n]; n is a multiple of TILE and k of STEP. Block (x, y): columns from TILE * x on, rows from
 * TILE * y on. */
extern "C" __global__ void __launch_bounds__(THREADS) matmul(const element *a, const element *b, element *o,
                                                             long long m, long long n, long long k)
{
    extern __shared__ float4 shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
    const long long row = (long long)blockIdx.y * TILE, column = (long long)blockIdx.x * TILE;
    const int rows = m - row < TILE ? (int)(m - row) : TILE, steps = (int)(k / STEP);
    const unsigned ring = shared_address(shared);
    const tile_copy<THREADS, STEP, TILE, ROW_BYTES, 0> copy(threadIdx.x);
    const element *from_a = a + row * k + copy.first(k), *from_b = b + column * k + copy.first(k);

    auto begin = [&](int step) {
        const unsigned to = ring + step % STAGES * 2 * TILE_BYTES;
        if (step < steps) {
            if (rows == TILE)
                copy.begin_all(to, from_a + step * STEP, k);
            else
                copy.begin(to, a + row * k + step * STEP, k, rows);
            copy.begin_all(to + TILE_BYTES, from_b + step * STEP, k);
        }
        commit_copies();
    };

    float sum[4][4][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        clear(sum[i]);
    for (int step = 0; step < STAGES - 1; step++)
        begin(step);
    for (int step = 0; step < steps; step++) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        begin(step + STAGES - 1);
        const unsigned tile = ring + step % STAGES * 2 * TILE_BYTES;
#pragma unroll
        for (int part = 0; part < STEP / 16; part++) {
            unsigned left[4][4], right[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                load_matrix(left[i], tile + swizzled(warp_row + i * 16 + row_of_a(lane), part * 2 + chunk_of_a(lane),
                                                     ROW_BYTES));
#pragma unroll
            for (int j = 0; j < 2; j++)
                load_matrix(right[j], tile + TILE_BYTES + swizzled(warp_column + j * 16 + row_of_b(lane),
                                                                   part * 2 + chunk_of_b(lane), ROW_BYTES));
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    mma(sum[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const long long to = row + warp_row + i * 16 + half * 8 + lane / 4;
            if (to < m)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    store_pair(o + to * n + column + warp_column + j * 8 + lane % 4 * 2, sum[i][j][2 * half],
                               sum[i][j][2 * half + 1]);
        }
}
