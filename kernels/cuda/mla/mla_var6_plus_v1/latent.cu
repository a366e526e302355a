/* mla_var6_plus v1, stage latent: the oldest `old` tokens by the latent cache, on tensor cores.
 *
 * What differs from v0: 32 queries, of all heads alike, meet a tile of tokens at a time through mma.sync with online
 * softmax; and the result is rounded to elements, which `combine` needs for its tensor cores. See latent_mma.cuh. */
#include "../../common/latent_mma.cuh"

/* qc [b,h,s,K], qpe [b,h,s,P], z [b,t,K], kpe [b,t,P], latent [b,h,s,K], lse [b,h,s] (base 2).
 * Block (x, y): of the h * s queries of request y those from 32x on. */
extern "C" __global__ void __launch_bounds__(THREADS) latent(const element *qc, const element *qpe, const element *z,
                                                             const element *kpe, element *latent, float *lse,
                                                             long long s, long long t, long long old, long long h,
                                                             float scale, long long causal)
{
    attend_latent(qc, qpe, z, kpe, latent, lse, s, t, old, h, scale, causal, blockIdx.y, blockIdx.x);
}
