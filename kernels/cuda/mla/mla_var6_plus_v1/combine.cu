/* mla_var6_plus v1, stage combine: merges old and new tokens by their log-sum-exp, o = old share * latent · w_uv + new
 * share * fresh.
 *
 * What differs from v0: the projection runs on tensor cores, 64 rows of a head sharing every element of w_uv; see
 * project_mma.cuh. */
#include "../../common/project_mma.cuh"
#include "../../common/softmax.cuh"

/* latent [b,h,s,K] (read where n < t), fresh [b,h,s,D] (read where n > 0) and their lse [b,h,s] (base 2), w_uv [h,K,D],
 * o [b,h,s,D]. Block (x, y): of the b * s rows of head y those from 64x on. */
extern "C" __global__ void __launch_bounds__(PROJECT_THREADS)
combine(const element *latent, const float *latent_lse, const float *fresh, const float *fresh_lse, const element *w_uv,
        element *o, long long b, long long s, long long t, long long n, long long h)
{
    float sum[D / 8][4];
    clear(sum);
    if (n < t)
        project_rows(latent, w_uv, sum, b, s, h, blockIdx.y, blockIdx.x);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = blockIdx.x * PROJECT_M + warp * 16 + half * 8 + lane / 4;
        if (row >= b * s)
            continue;
        row = row_in_tensor(row, s, h, blockIdx.y);
        float old_lse = n < t ? latent_lse[row] : NO_SCORE, new_lse = n > 0 ? fresh_lse[row] : NO_SCORE;
        float largest = fmaxf(old_lse, new_lse), old_share = 0.0f, new_share = 0.0f;
        if (largest > NO_SCORE) {
            old_share = power_of_two(old_lse - largest);
            new_share = power_of_two(new_lse - largest);
            float factor = 1.0f / (old_share + new_share);
            old_share *= factor;
            new_share *= factor;
        }
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            long long at = (long long)row * D + i * 8 + lane % 4 * 2;
            float2 newer = n > 0 ? *reinterpret_cast<const float2 *>(fresh + at) : make_float2(0.0f, 0.0f);
            store_pair(o + at, old_share * sum[i][2 * half] + new_share * newer.x,
                       old_share * sum[i][2 * half + 1] + new_share * newer.y);
        }
    }
}
