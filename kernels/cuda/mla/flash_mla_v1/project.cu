/* flash_mla v1, stage project: o = latent · w_uv on tensor cores.
 *
 * What differs from v0: 64 rows of a head share every element of w_uv; see project_mma.cuh. */
#include "../../common/project_mma.cuh"

/* latent [b,h,s,K], w_uv [h,K,D], o [b,h,s,D]. Block (x, y): of the b * s rows of head y those from 64x on. */
extern "C" __global__ void __launch_bounds__(PROJECT_THREADS) project(const element *latent, const element *w_uv,
                                                                      element *o, long long b, long long s, long long h)
{
    float sum[D / 8][4];
    project_rows(latent, w_uv, sum, b, s, h, blockIdx.y, blockIdx.x);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = blockIdx.x * PROJECT_M + warp * 16 + half * 8 + lane / 4;
        if (row < b * s)
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                store_pair(o + (long long)row_in_tensor(row, s, h, blockIdx.y) * D + n * 8 + lane % 4 * 2,
                           sum[n][2 * half], sum[n][2 * half + 1]);
    }
}
